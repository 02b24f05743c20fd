// Loaded into CDK's command line: it looks at a stack every 5 s, which is for AWS's sake. The local AWS has often done
// its part a moment later.
"use strict";

const patient = globalThis.setTimeout;
const CDK_MS = 5000;
const HERE_MS = 1000;

function setTimeout(callback, ms, ...rest) {
  return patient(callback, ms === CDK_MS ? HERE_MS : ms, ...rest);
}

// So that util.promisify finds what it looks for.
globalThis.setTimeout = Object.setPrototypeOf(setTimeout, patient);
