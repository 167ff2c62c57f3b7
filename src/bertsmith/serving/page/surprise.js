/** How well a model guesses each word of a text from the others. */

export const MOST_WORDS = 80;
const ASKED = 50;

/** Return a piece without the blank that it begins with in vocabularies of bytes. */
export const bare = (piece) => piece.replace(/^[\u0120 ]+/, "");

/**
 * Hide each word in turn, and look where it is among the guesses.
 * @param {Room} room asks the model.
 * @param {Array} parts of the text, as ``partsOf`` cuts it; blanks stay blanks.
 * @param {function(Array, number): {text: string, number: number}} hidden gives the text without the word at a place, and
 *   which of its blanks is that word's.
 * @returns {Promise<Map<number, {rank: number|null, share: number|null}>|null>} by place; a rank is null where the word is
 *   not among the best guesses. Words of several pieces are left out: a blank holds one. null: asking failed.
 */
export async function surprises(room, parts, hidden) {
  const places = parts.flatMap((part, place) => (part.kind === "word" ? [place] : []));
  const pieces = await room.once("v1/tokenize", { texts: places.map((place) => ` ${parts[place].text}`) });
  if (pieces === null) return null;
  const tokens = pieces.answer.results.map((result) => result.tokens.slice(1, -1));
  const single = places.map((place, at) => ({ place, token: tokens[at][0], alone: tokens[at].length === 1 })).filter(({ alone }) => alone);
  if (single.length === 0) return new Map();
  const texts = single.map(({ place }) => hidden(parts, place));
  const asked = await room.once("v1/fill", { texts: texts.map(({ text }) => text), top: Math.min(ASKED, room.vocab) });
  if (asked === null) return null;
  return new Map(single.map(({ place, token }, at) => {
    const candidates = asked.answer.results[at].masks[texts[at].number];
    const rank = candidates.findIndex((candidate) => bare(candidate.token) === bare(token));
    return [place, rank < 0 ? { rank: null, share: null } : { rank: rank + 1, share: candidates[rank].probability }];
  }));
}

/** Return how strong a word's surprise is, 0 to 1: 0 for the first guess, 1 where it is not among the best. */
export const strength = ({ rank }) => (rank === null ? 1 : 0.8 * Math.log(rank) / Math.log(ASKED));
