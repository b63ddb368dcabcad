// Predictions of an exported folder in JavaScript, by transformers.js in Node.js or, in the same way, in a browser:
//
//     npm install @huggingface/transformers
//     node predict.mjs outputs/tickets/export/tickets int8 "My card was charged twice."
//
// The second argument is the suffix of the file in the folder onnx: fp32 for model.onnx, int8 for model_int8.onnx.
import path from "node:path";
import { env, pipeline } from "@huggingface/transformers";

const [folder, dtype, ...texts] = process.argv.slice(2);
env.allowRemoteModels = false; // nothing is downloaded
env.localModelPath = path.dirname(path.resolve(folder));
const classify = await pipeline("text-classification", path.basename(folder), { dtype });
console.log(JSON.stringify(await classify(texts, { top_k: null })));
