// Stands before the theme's search worker. The worker takes each word as a prefix: "a" would find all that begins with an a.
const NOISE = new Set(
  ("a able about after all also am an and another any are as at be been but by can cannot could data did do does for from " +
    "get had happen happens has have headwater how i if in into is it its just know like make me my need no not of on one or " +
    "other our should since so some than that the their them then there these they this to up us use using want was " +
    "way we were what when where whether which while who whom why will with would you your").split(" "),
);
// "running" and "run", "dropped" and "drop": the end of a word that is doubled before an ending counts once.
const single = (word) => word.replace(/([bdgmnprt])\1$/, "$1");
const stem = (word) =>
  word.length > 6 && word.endsWith("ing") ? single(word.slice(0, -3))
  : word.length > 5 && /[^e]ed$/.test(word) ? single(word.slice(0, -2))
  : word.length > 3 && /[^sui]s$/.test(word) ? word.slice(0, -1)
  : word;
// Nearly every page has these words, so they decide less.
const COMMON = new Set(
  ("before best exist first give given go goes handl handle keep kept long many new old option possible practice preview " +
    "production roll run safely same test time two way work").split(" "),
);
// "contribute" begins no "contributing", and "deployment" no "deploy".
const beginning = (word) => word.replace(/(?<=.{5})(?:e|ion|ment)$/, "");

// The search's own syntax. Signs elsewhere belong to a pasted error, such as `ERROR: relation "orders" does not exist`.
const SYNTAX = /^\s*"[^"]*"\s*$|(?:^|\s)\+[\p{L}\p{N}]|[\p{L}\p{N}][*^~]|(?:^|\s)(?:title|text|tags):\S/u;

// A program's own name says more than the words around it: TABLE_NOT_FOUND, OutOfMemoryError.
const NAME = /[\p{L}\p{N}]+_[\p{L}\p{N}_]+|\p{L}+(?:error|exception)(?![\p{L}\p{N}])/gu;
const ENDING = /(?:error|exception)$/;

addEventListener("message", ({ data: message }) => {
  if (message.type !== 2 || SYNTAX.test(message.data)) return;
  const text = message.data.toLowerCase();
  const names = (text.match(NAME) ?? []).flatMap((name) => [`${name}^12`, `${name.replace(ENDING, "")}^12`]);
  const words = text.split(/[^\p{L}\p{N}_]+/u).filter((word) => word && !NOISE.has(word)).map(stem);
  // The whole word counts more than a word that it begins.
  const weighted = words.map((word) => (COMMON.has(word) ? word : `${word}^3 ${beginning(word)}`));
  if (words.length) message.data = [...weighted, ...names].join(" ");
});
