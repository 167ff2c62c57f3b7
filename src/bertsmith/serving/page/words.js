/** What the page says, in each language. */

export const LANGUAGES = { en: "English", zh: "中文" };

const WORDS = {
  en: {
    title: "Bertsmith", tabs: "What to try", language: "Language", theme: "Colours", "theme.auto": "Auto",
    "theme.light": "Light", "theme.dark": "Dark", model: "Model", mean: "all", comma: ", ",
    facts: "{layers} layers · {heads} heads · {hidden} wide · {vocab} pieces in the vocabulary · reads up to {length}",
    text: "Text", first: "First text", second: "Second text", "second.maybe": "Second text, if there is one",
    examples: "Try", asking: "Asking …", read: "{pieces} pieces read in {milliseconds} ms",
    cut: "The text was longer than the model takes, so its end was not read ({length} pieces at most).",
    request: "The request", copy: "Copy", copied: "Copied", link: "Link to this",
    "link.copied": "The link is copied", "link.above": "The link is in the address bar", answer: "The answer",
    again: "Try again", unreachable: "The server does not answer. Is it still running?",
    token: "This server asks for a token.", "token.wrong": "The server does not know this token.",
    "token.field": "Token", "token.use": "Use it", loading: "Looking at the models …",
    "nothing.loaded": "No model is loaded.",

    "tab.fill": "Fill in", "tab.attention": "Attention", "tab.classify": "Classify", "tab.tag": "Entities",
    "tab.answer": "Questions", "tab.choose": "Choices", "tab.similarity": "Similarity", "tab.rerank": "Ranking",
    "tab.tokenize": "Pieces",
    "lead.fill": "BERT learned language by guessing hidden words from both sides. Hide some, and see its guesses.",
    "lead.attention": "In every layer, each head lets each piece look at the others. See who looks where.",
    "lead.classify": "What the model makes of a text, how sure it is, and which words decide.",
    "lead.tag": "The names in a text, and what they name.",
    "lead.answer": "The model marks the words of a passage that answer a question, or says that none do.",
    "lead.choose": "Which of some choices goes best with a text.",
    "lead.similarity": "Texts that mean the same lie close together. A cosine of 1 is the same direction.",
    "lead.rerank": "Texts in the order of how well they answer a query.",
    "lead.tokenize": "A model reads pieces of words, each by its number in the vocabulary.",

    how: "How it works",
    "how.fill": "In training, 15 % of a text's pieces were chosen; most of them were replaced by [MASK], some by a random piece, "
      + "and the model had to say what stood there, reading the whole text at once, left and right. A share is the softmax "
      + "over the whole vocabulary.",
    "how.classify": "The vector of [CLS], the piece in front of every text, goes through one more layer, which scores the labels. "
      + "Where one label is right, a softmax makes probabilities of the scores; where any number may be, each score has its own. "
      + "Leaving out a word is a rough measure: a text without it is another text.",
    "how.tag": "The vector of each word's first piece scores the tags. In a tag, B- begins an entity and I- goes on with it; "
      + "O is no entity.",
    "how.answer": "Question and passage are read together, parted by [SEP]. Every piece gets a score for being the first and one for "
      + "being the last of the answer; the best span wins. “No answer” is the span of [CLS] alone. Long passages are read in "
      + "windows that overlap.",
    "how.choose": "Each choice is read together with the context. The vector of [CLS] gives each a score, and a softmax over the "
      + "choices makes probabilities of them.",
    "how.similarity": "A text's vector is the mean of its pieces' vectors, or what the model was trained with. The cosine is that of "
      + "the angle between two such vectors.",
    "how.rerank": "A model that was trained on pairs reads query and text together and scores them. Any other model compares their "
      + "vectors, as under Similarity.",
    "how.attention": "In a head, every piece makes a query, a key and a value. Query times key, for all pieces and through a softmax, "
      + "gives weights that sum to 1; what a piece takes along is the mean of the values with these weights. They say where "
      + "something may flow, not why the model decides.",
    "how.tokenize": "Words, marks and single Chinese characters are parted; each word is then cut, from the left, into the longest "
      + "pieces that the vocabulary has, and ## marks those that go on with a word. (Vocabularies of bytes merge frequent "
      + "neighbours instead.) [CLS] and [SEP] are put around.",

    "fill.sheet": "Your text", "fill.hint": "Click a word to hide it. Click a guess to fill it in.",
    "fill.write": "Write your own", "fill.done": "Done", "fill.all": "Fill in all, surest first", "fill.over": "Start over",
    "fill.turn": "Hide each in turn",
    "fill.turned": "Each word was hidden once: the darker, the further down the guesses it is. Point at a word to read it.",
    "fill.turned.rank": "guess number {rank}, {share}", "fill.turned.beyond": "not among the best guesses",
    "fill.blank.it": "Hide this word", "fill.blank": "Blank {number}: {guess}", "fill.none": "Nothing is hidden. Click a word.",
    "fill.title": "Blank {number} of {count}", "fill.guesses": "Guesses", "fill.held": "These {count} hold {share} of the probability.",
    "fill.back": "Put it back", "fill.remove": "Remove this blank", "fill.more": "Make it {count} blanks",
    "fill.rank": "“{word}” stood here: guess number {rank}, {share}.",
    "fill.beyond": "“{word}” stood here. It is not among the best {best} guesses.",
    "fill.pieces": "“{word}” stood here: {count} pieces ({pieces}), while one blank holds one.",

    "attention.cut": "Only the first {count} pieces are drawn: every head has a weight for each pair of pieces.",
    "attention.pieces": "Pieces", "attention.heads": "Layers (down) and heads (across); first column: mean", "attention.direction": "Direction",
    "attention.to": "Where it looks", "attention.from": "Who looks at it", "attention.specials": "Special pieces",
    "attention.with": "With [CLS] and [SEP]", "attention.without": "Without them", "attention.find": "Show a head that looks",
    "attention.before": "one back", "attention.after": "one ahead", "attention.itself": "at itself",
    "attention.special": "at special pieces", "attention.wide": "everywhere",
    "attention.layer": "Layer {layer}, mean of its heads", "attention.head": "Layer {layer}, head {head}",
    "attention.all": "All layers and heads, mean",
    "attention.to.said": "{where}: “{piece}” looks at {others}.",
    "attention.from.said": "{where}: “{piece}” is looked at by {others}.",
    "attention.before.said": "This head mostly looks one piece back ({share}).",
    "attention.after.said": "This head mostly looks one piece ahead ({share}).",
    "attention.itself.said": "This head mostly looks at the piece itself ({share}).",
    "attention.special.said": "This head mostly looks at special pieces ({share}), which often means: nothing to do here.",
    "attention.matrix": "The chosen head: each line is where one piece looks",
    "attention.matrix.hint": "Point at a cell to read it; click to choose its piece.",
    "attention.cell": "“{from}” looks at “{to}”: {share}",

    "classify.value": "Value", "classify.label": "Label", "classify.labels": "Labels", "classify.none": "none",
    "classify.probabilities": "Probabilities", "classify.why": "Which words decide?",
    "classify.pick": "Click a label to see which words speak for it.",
    "classify.few": "There is only one word.", "classify.many": "This takes one answer a word, so it is for at most {most} words.",
    "classify.words": "What the words do for “{label}”", "classify.for": "for it", "classify.against": "against it",
    "classify.how": "Each word was left out once; the colour is how much that changed the answer.",

    "tag.none": "No entities found.", "tag.text": "Text", "tag.kind": "Kind", "tag.sure": "Probability", "tag.words": "Every word with its tag",

    "answer.question": "Question", "answer.passage": "Passage", "answer.answer": "Answer", "answer.no": "no answer in the passage",
    "answer.candidates": "Candidates",
    "answer.null.some": "Null odds {odds} (score of “no answer” minus that of the best span): not beyond the model's threshold.",
    "answer.null.none": "Null odds {odds} (score of “no answer” minus that of the best span): beyond the model's threshold.",

    "choose.context": "Beginning or context", "choose.choices": "Choices, one a line", "choose.best": "Best choice",
    "choose.few": "Write a context and at least two choices.",

    "similarity.lines": "Texts, one a line", "similarity.few": "Write at least two lines.", "similarity.closest": "Closest to",
    "similarity.pick": "Click a text to see what is closest to it.", "similarity.table": "Cosine of each with each",
    "similarity.many": "The table is drawn for at most {most} texts.",

    "rerank.query": "Query", "rerank.lines": "Texts, one a line", "rerank.best": "Best first",

    "tokenize.special": "added by the model", "tokenize.from": "“{text}”, characters {start} to {end}",
    "tokenize.said": "{pieces} pieces for {characters} characters, {each} characters a piece; special pieces not counted.",
    "tokenize.unknown": "Not in the vocabulary: {count}. The model cannot tell these apart.",
  },
  zh: {
    title: "Bertsmith", tabs: "可以试的功能", language: "语言", theme: "颜色", "theme.auto": "自动",
    "theme.light": "浅色", "theme.dark": "深色", model: "模型", mean: "平均", comma: "、",
    facts: "{layers} 层 · 每层 {heads} 个注意力头 · 宽度 {hidden} · 词表 {vocab} 个词片 · 最多读 {length} 个词片",
    text: "文本", first: "第一段文本", second: "第二段文本", "second.maybe": "第二段文本（可以不填）",
    examples: "试一试", asking: "正在计算……", read: "读了 {pieces} 个词片，用时 {milliseconds} 毫秒",
    cut: "文本超过了模型的长度，后面的部分没有读（最多 {length} 个词片）。",
    request: "查看请求", copy: "复制", copied: "已复制", link: "本页链接",
    "link.copied": "链接已复制", "link.above": "链接在地址栏中", answer: "返回结果",
    again: "重试", unreachable: "服务器没有响应，它还在运行吗？",
    token: "此服务器需要令牌。", "token.wrong": "服务器不认识这个令牌。",
    "token.field": "令牌", "token.use": "使用", loading: "正在读取模型……",
    "nothing.loaded": "没有加载任何模型。",

    "tab.fill": "填空", "tab.attention": "注意力", "tab.classify": "分类", "tab.tag": "实体", "tab.answer": "问答",
    "tab.choose": "选择", "tab.similarity": "相似度", "tab.rerank": "排序", "tab.tokenize": "词片",
    "lead.fill": "BERT 通过猜测被遮住的词来学习语言，左右两边的文字都看。遮住几个词，看看它怎么猜。",
    "lead.attention": "在每一层中，每个注意力头都让每个词片去看其他词片。看看谁在看谁。",
    "lead.classify": "模型如何判断一段文本，把握有多大，哪些词起决定作用。",
    "lead.tag": "文本中的名称，以及它们指的是什么。",
    "lead.answer": "模型在段落中标出能回答问题的文字；如果没有，它会说没有答案。",
    "lead.choose": "几个选项中，哪一个与文本最相配。",
    "lead.similarity": "意思相近的文本，向量也相近。余弦为 1 表示方向完全相同。",
    "lead.rerank": "按照与查询的相关程度排列文本。",
    "lead.tokenize": "模型读的是词片，每个词片在词表中有一个编号。",

    how: "工作原理",
    "how.fill": "训练时，从文本中选出 15% 的词片，其中大部分换成 [MASK]，一部分换成随机的词片，模型要说出原来是什么；"
      + "它同时看左右两边的全部文字。概率是在整个词表上做 softmax 得到的。",
    "how.classify": "每段文本最前面都有一个 [CLS]，它的向量再经过一层，给各个标签打分。只有一个标签正确时，用 softmax 把分数变成概率；"
      + "可以有任意多个标签时，每个分数各算各的概率。去掉一个词只是粗略的衡量：少了一个词，就是另一段文本了。",
    "how.tag": "用每个词的第一个词片的向量给标注打分。标注中 B- 表示实体的开头，I- 表示实体的延续，O 表示不是实体。",
    "how.answer": "问题和段落用 [SEP] 隔开，一起读入。每个词片得到两个分数：作为答案开头的分数和作为答案结尾的分数，得分最高的片段就是答案。"
      + "“没有答案”就是只选 [CLS]。长段落分成相互重叠的窗口来读。",
    "how.choose": "每个选项都与上下文一起读入，用 [CLS] 的向量打分，再在各个选项之间做 softmax 得到概率。",
    "how.similarity": "文本的向量是各个词片向量的平均，或者是模型训练时所用的方式。余弦就是两个向量夹角的余弦。",
    "how.rerank": "用成对文本训练的模型把查询和文本一起读入并打分；其他模型像“相似度”那样比较两者的向量。",
    "how.attention": "在每个头里，每个词片都产生一个查询、一个键和一个值。查询与所有词片的键相乘，经过 softmax，得到总和为 1 的权重；"
      + "词片得到的就是按这些权重平均的值。权重表示信息可能流向哪里，而不是模型为什么这样判断。",
    "how.tokenize": "先把词、标点和单个汉字分开，再从左往右，把每个词切成词表中最长的词片，## 表示接在前面的词片之后。"
      + "（字节词表则是把经常相邻的部分合并。）最后在两端加上 [CLS] 和 [SEP]。",

    "fill.sheet": "你的文本", "fill.hint": "点一个词把它遮住，点一个猜测把它填进去。",
    "fill.write": "自己写", "fill.done": "完成", "fill.all": "全部填上，最有把握的先填", "fill.over": "重新开始",
    "fill.turn": "逐个遮住",
    "fill.turned": "每个词都遮住过一次：颜色越深，它在猜测中的排名越靠后。指向一个词可以读出数值。",
    "fill.turned.rank": "排第 {rank} 位，概率 {share}", "fill.turned.beyond": "不在最好的猜测之中",
    "fill.blank.it": "遮住这个词", "fill.blank": "空 {number}：{guess}", "fill.none": "还没有遮住任何词。点一个词试试。",
    "fill.title": "第 {number} 个空，共 {count} 个", "fill.guesses": "猜测", "fill.held": "这 {count} 个猜测共占概率的 {share}。",
    "fill.back": "放回原词", "fill.remove": "去掉这个空", "fill.more": "改成 {count} 个空",
    "fill.rank": "原来是“{word}”：排第 {rank} 位，概率 {share}。",
    "fill.beyond": "原来是“{word}”，不在前 {best} 个猜测之中。",
    "fill.pieces": "原来是“{word}”，由 {count} 个词片组成（{pieces}），而一个空只能放一个词片。",

    "attention.cut": "只画出前 {count} 个词片：每个头对每一对词片都有一个权重。",
    "attention.pieces": "词片", "attention.heads": "层（自上而下）与注意力头（从左到右），第一列为平均", "attention.direction": "方向",
    "attention.to": "它看向谁", "attention.from": "谁在看它", "attention.specials": "特殊词片",
    "attention.with": "包括 [CLS] 和 [SEP]", "attention.without": "不包括", "attention.find": "找一个注意力头，它看",
    "attention.before": "前一个", "attention.after": "后一个", "attention.itself": "自己",
    "attention.special": "特殊词片", "attention.wide": "所有地方",
    "attention.layer": "第 {layer} 层，各头平均", "attention.head": "第 {layer} 层，第 {head} 个头",
    "attention.all": "所有层和头的平均",
    "attention.to.said": "{where}：“{piece}”看向 {others}。",
    "attention.from.said": "{where}：看“{piece}”的有 {others}。",
    "attention.before.said": "这个头主要看前一个词片（{share}）。",
    "attention.after.said": "这个头主要看后一个词片（{share}）。",
    "attention.itself.said": "这个头主要看词片自己（{share}）。",
    "attention.special.said": "这个头主要看特殊词片（{share}），往往表示：这里无事可做。",
    "attention.matrix": "所选的头：每一行是一个词片看向哪里",
    "attention.matrix.hint": "指向一个格子可以读出数值，点击可以选中它的词片。",
    "attention.cell": "“{from}”看向“{to}”：{share}",

    "classify.value": "数值", "classify.label": "标签", "classify.labels": "标签", "classify.none": "无",
    "classify.probabilities": "概率", "classify.why": "哪些词起决定作用？",
    "classify.pick": "点一个标签，看看哪些词支持它。",
    "classify.few": "只有一个词。", "classify.many": "每个词都要计算一次，所以最多 {most} 个词。",
    "classify.words": "各个词对“{label}”的作用", "classify.for": "支持", "classify.against": "反对",
    "classify.how": "每次去掉一个词，颜色表示结果因此改变了多少。",

    "tag.none": "没有找到实体。", "tag.text": "文本", "tag.kind": "类别", "tag.sure": "概率", "tag.words": "每个词及其标注",

    "answer.question": "问题", "answer.passage": "段落", "answer.answer": "答案", "answer.no": "段落中没有答案",
    "answer.candidates": "候选答案",
    "answer.null.some": "无答案得分差（“没有答案”减去最佳片段）为 {odds}，没有超过模型的阈值。",
    "answer.null.none": "无答案得分差（“没有答案”减去最佳片段）为 {odds}，超过了模型的阈值。",

    "choose.context": "开头或上下文", "choose.choices": "选项，每行一个", "choose.best": "最佳选项",
    "choose.few": "请写一段上下文和至少两个选项。",

    "similarity.lines": "文本，每行一个", "similarity.few": "请至少写两行。", "similarity.closest": "与它最接近",
    "similarity.pick": "点一个文本，看看什么与它最接近。", "similarity.table": "两两之间的余弦",
    "similarity.many": "表格最多显示 {most} 个文本。",

    "rerank.query": "查询", "rerank.lines": "文本，每行一个", "rerank.best": "最相关的在前",

    "tokenize.special": "由模型添加", "tokenize.from": "“{text}”，第 {start} 到 {end} 个字符",
    "tokenize.said": "{characters} 个字符分成 {pieces} 个词片，平均每个词片 {each} 个字符；特殊词片不计。",
    "tokenize.unknown": "词表中没有的有 {count} 个，模型无法区分它们。",
  },
};

/** Return the language to begin with: the one chosen before, else the browser's. */
export const firstLanguage = (chosen) => (
  chosen in WORDS ? chosen : navigator.languages.some((one) => one.startsWith("zh")) ? "zh" : "en"
);

/** Return what says a sentence by its name, with values in its places. */
export const speaking = (language) => (name, values = {}) => (
  WORDS[language][name].replace(/\{(\w+)\}/g, (_, key) => values[key])
);

/** Return the names of all sentences of a language; tests compare them. */
export const namesIn = (language) => Object.keys(WORDS[language]);
