/** Arithmetic on attention weights. A matrix is {size, values}: values[i * size + j] is how much piece i looks at j. */

/**
 * Return matrices of all heads.
 * @param {number[][][][]} weights as the server answers: (layers, heads, pieces, pieces).
 * @returns {Array<Array<{size: number, values: Float32Array}>>} by layer and head.
 */
export const matricesOf = (weights) => weights.map((layer) => layer.map((head) => (
  { size: head.length, values: Float32Array.from(head.flat()) }
)));

/** Return the mean of matrices of one size. */
export function mean(matrices) {
  const { size } = matrices[0], values = new Float32Array(size * size);
  for (const matrix of matrices) for (let at = 0; at < values.length; at += 1) values[at] += matrix.values[at];
  return { size, values: values.map((sum) => sum / matrices.length) };
}

/**
 * Return a matrix without the pieces that are not kept: they look at nothing and are not looked at; what the others
 * look at sums to 1 again.
 */
export function keeping({ size, values }, kept) {
  const next = new Float32Array(size * size);
  for (let i = 0; i < size; i += 1) {
    if (!kept[i]) continue;
    let sum = 0;
    for (let j = 0; j < size; j += 1) if (kept[j]) sum += values[i * size + j];
    for (let j = 0; j < size; j += 1) if (kept[j] && sum > 0) next[i * size + j] = values[i * size + j] / sum;
  }
  return { size, values: next };
}

/** Return what one piece looks at, or, "from", how much each piece looks at it. */
export const lineOf = ({ size, values }, piece, direction) => Array.from({ length: size }, (_, other) => (
  values[direction === "to" ? piece * size + other : other * size + piece]
));

/**
 * Return how much of a matrix follows each of some patterns: means over the pieces that are not special, 0 to 1.
 * "wide" is the entropy of where a piece looks, as a share of the greatest there is.
 */
export function patternsOf({ size, values }, special) {
  const sums = { before: 0, after: 0, itself: 0, special: 0, wide: 0 };
  let count = 0;
  for (let i = 0; i < size; i += 1) {
    if (special[i]) continue;
    count += 1;
    const row = values.subarray(i * size, (i + 1) * size);
    if (!special[i - 1]) sums.before += row[i - 1] ?? 0;
    if (!special[i + 1]) sums.after += row[i + 1] ?? 0;
    sums.itself += row[i];
    row.forEach((weight, j) => {
      if (special[j]) sums.special += weight;
      if (weight > 0) sums.wide -= weight * Math.log(weight) / Math.log(size);
    });
  }
  return Object.fromEntries(Object.entries(sums).map(([name, sum]) => [name, sum / Math.max(count, 1)]));
}

/** Return the [layer, head] whose share of a pattern is the largest. */
export function mostOf(patterns, name) {
  let best = [0, 0];
  patterns.forEach((layer, at) => layer.forEach((head, number) => {
    if (head[name] > patterns[best[0]][best[1]][name]) best = [at, number];
  }));
  return best;
}

const INK = [63, 127, 209];

/** Paint a matrix on a canvas, a pixel for a weight; the square root keeps small weights visible. */
export function paint(canvas, { size, values }) {
  canvas.width = canvas.height = size;
  const image = new ImageData(size, size);
  values.forEach((weight, at) => image.data.set([...INK, 255 * Math.sqrt(Math.min(weight, 1))], 4 * at));
  canvas.getContext("2d").putImageData(image, 0, 0);
}
