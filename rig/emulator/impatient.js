// Loaded into CDK's command line, which polls a stack only every 5 s to spare AWS. The local AWS is often ready a moment
// later, so here CDK polls every second.
"use strict";

const patient = globalThis.setTimeout;
const CDK_MS = 5000;
const HERE_MS = 1000;

function setTimeout(callback, ms, ...rest) {
  return patient(callback, ms === CDK_MS ? HERE_MS : ms, ...rest);
}

// util.promisify looks for a property of the original function.
globalThis.setTimeout = Object.setPrototypeOf(setTimeout, patient);
