/** Texts to begin with, and which language of them a model reads. */

const EXAMPLES = {
  en: {
    fill: [
      "The doctor said that [MASK] would call the patient tomorrow.",
      "If it rains tomorrow, we will [MASK] at home.",
      "She poured the coffee into a [MASK] and sat down by the [MASK].",
      "The capital of France is [MASK].",
    ],
    attention: [
      "The cat sat on the mat because it was warm.",
      "The trophy does not fit into the suitcase because it is too big.",
      "Paris is the capital of France, and Rome is the capital of Italy.",
    ],
    classify: [
      "A quiet, funny and moving film that stays with you.",
      "Two hours of noise without a single idea.",
      "Not bad at all, although the end is far too long.",
    ],
    pairs: [
      ["A man is playing a guitar on the street.", "Somebody is making music outside."],
      ["The shop opens at nine every morning.", "The shop is closed all day."],
      ["How do I reset my password?", "What should I do if I forgot my password?"],
    ],
    tag: [
      "Marie Curie was born in Warsaw and worked at the University of Paris.",
      "In May, Angela Meyer left Siemens in Munich and joined the World Bank in Washington.",
      "Japan beat Syria 2-1 in the Asian Cup on Friday.",
    ],
    answer: [
      "The lighthouse on the island was built in 1874 by the engineer Thomas Brandt. It is 31 metres high, and its "
      + "light can be seen from a distance of 28 kilometres. Until 1969 a keeper lived there with his family; since "
      + "then the lamp has been switched on and off by a clock. Visitors may climb the tower from May to September.",
      "Who built the lighthouse?", "How high is it?", "When may visitors climb the tower?", "How much is a ticket?",
    ],
    choose: [
      ["She opens the umbrella.", "It has begun to rain.", "The soup is too salty.", "He plays the piano."],
      ["A boy throws a ball to his dog. The dog", "runs after it and brings it back.", "reads a book about birds.",
        "pays for the ticket."],
    ],
    similarity: "A man is playing a guitar.\nSomeone makes music on a string instrument.\nThe train to Berlin is late.\n"
      + "We are waiting for a delayed train.\nBake the bread for forty minutes.",
    rerank: ["How long does the battery last?",
      "One charge of the battery lasts about ten hours.\nThe screen measures fourteen inches.\n"
      + "Charging takes two hours with the cable in the box.\nWe deliver within three days.\n"
      + "The battery can be replaced by a workshop."],
    tokenize: [
      "Unbelievably, the tokenizer splits embeddings into word pieces.",
      "Größe, naïve, co-operate: 3.14 e-mails 🙂 to 東京",
      "internationalization and antidisestablishmentarianism",
    ],
  },
  zh: {
    fill: ["法国的首都是[MASK]黎。", "今天天气很[MASK]，我们去公园散步吧。", "他每天早上都喝一杯[MASK]啡。", "北京是中国的首[MASK]。"],
    attention: ["小猫坐在垫子上，因为那里很暖和。", "北京是中国的首都，东京是日本的首都。", "奖杯放不进箱子，因为它太大了。"],
    classify: ["房间干净，服务热情，下次还会再来。", "等了一个小时才上菜，味道也很一般。", "价格不便宜，不过质量确实不错。"],
    pairs: [
      ["怎么修改我的密码？", "忘记密码了应该怎么办？"],
      ["商店每天早上九点开门。", "商店今天全天不营业。"],
      ["一个男人在街上弹吉他。", "有人在外面演奏音乐。"],
    ],
    tag: ["居里夫人出生于华沙，后来在巴黎大学工作。", "王芳去年离开上海的华为公司，加入了北京大学。", "周五的亚洲杯比赛中，日本队以二比一战胜叙利亚队。"],
    answer: [
      "岛上的灯塔由工程师李明德于1874年建成，高31米，灯光在28公里以外也能看见。1969年以前，守塔人和家人一直住在那里；"
      + "此后，灯由时钟自动开关。每年五月到九月，游客可以登塔参观。",
      "灯塔是谁建的？", "灯塔有多高？", "游客什么时候可以登塔？", "门票多少钱？",
    ],
    choose: [
      ["她撑开了雨伞。", "外面开始下雨了。", "汤太咸了。", "他在弹钢琴。"],
      ["男孩把球扔给小狗，小狗", "跑过去把球叼了回来。", "读了一本关于鸟的书。", "付了车票钱。"],
    ],
    similarity: "一个男人在弹吉他。\n有人在演奏弦乐器。\n去柏林的火车晚点了。\n我们在等一列晚点的火车。\n面包要烤四十分钟。",
    rerank: ["电池能用多久？", "电池充满一次可以用十个小时左右。\n屏幕是十四英寸。\n用盒子里的数据线充电需要两个小时。\n三天之内送货。\n"
      + "电池可以在维修店更换。"],
    tokenize: ["北京大学的学生在学习自然语言处理。", "我买了一台iPhone，花了6999元🙂", "人工智能 embeddings 与 𠮷野家"],
  },
};

/** Return the texts to begin with of a view. */
export const examplesOf = (language, name) => EXAMPLES[language][name];

/** Texts that show which languages a vocabulary is made for. */
export const PROBES = ["The weather was beautiful and we walked along the river.", "今天天气很好，我们沿着河边散步。"];
const MOST_PIECES = { en: 20, zh: 18 };

/**
 * Return the language of the texts to begin with: the page's, unless only the other one is in the vocabulary.
 * @param {string} language the page's.
 * @param {Array<string[]>} pieces of the probes, special ones included.
 */
export function readLanguage(language, pieces) {
  const known = (tokens) => tokens.filter((token) => token !== "[UNK]" && token !== "<unk>").length >= 0.8 * tokens.length;
  const reads = {
    en: known(pieces[0]) && pieces[0].length <= MOST_PIECES.en,
    zh: known(pieces[1]) && pieces[1].length <= MOST_PIECES.zh,
  };
  const other = language === "en" ? "zh" : "en";
  return reads[language] || !reads[other] ? language : other;
}
