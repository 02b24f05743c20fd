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
// "contribute" begins no "contributing", and "deployment" no "deploy".
const beginning = (word) => word.replace(/(?<=.{5})(?:e|ion|ment)$/, "");

addEventListener("message", ({ data: message }) => {
  if (message.type !== 2 || /["+^~*:]/.test(message.data)) return;
  const words = message.data.toLowerCase().split(/[^\p{L}\p{N}_]+/u).filter((word) => word && !NOISE.has(word)).map(stem);
  // The whole word counts more than a word that it begins.
  if (words.length) message.data = words.map((word) => `${word}^3 ${beginning(word)}`).join(" ");
});
