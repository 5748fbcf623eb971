// Writes src/generated.ts from schema.json, which schema.py writes. `npm run generate`; with --check it only compares.
import { readFileSync, writeFileSync } from "node:fs";
import { compile } from "json-schema-to-typescript";

const place = new URL("../src/generated.ts", import.meta.url);
const schema = JSON.parse(
  readFileSync(new URL("../schema.json", import.meta.url), "utf8"),
  // The generator takes a default for a type of its own, also a described reference, and a described field of any type for
  // an object.
  (key, value) => {
    if (key === "default") return undefined;
    if (typeof value?.$ref === "string") return { $ref: value.$ref };
    if (typeof value?.description === "string" && Object.keys(value).length === 1) return { ...value, tsType: "unknown" };
    return value;
  },
);

const mapOf = (title: string, description: string, named: Record<string, string>) => ({
  title,
  description,
  type: "object" as const,
  properties: Object.fromEntries(Object.entries(named).map(([key, name]) => [key, { $ref: `#/$defs/${name}` }])),
  required: Object.keys(named),
});

const root = {
  title: "Protocol",
  description: "All types of the protocol, as the service has them.",
  type: "object" as const,
  properties: {
    chunks: mapOf("Chunks", "Chunks by their `type`.", schema.chunks),
    requests: mapOf("Requests", "Requests by their `action`.", schema.requests),
    replies: mapOf("Replies", "Results by the `action` of their request.", schema.replies),
    made: mapOf("Made", "What the client makes of replies.", schema.made),
  },
  required: ["chunks", "requests", "replies", "made"],
  $defs: schema.$defs,
};

const types = await compile(root, "Protocol", { additionalProperties: false, bannerComment: "" });
const text = `// Generated from schema.json by scripts/generate.ts: do not edit.

${types.replace(/\/?\*?\*? \* This (?:interface|type) was referenced by[^\n]*\n[^\n]*via the `definition`[^\n]*\n/g, "").trim()}

/** A chunk of a type that this version knows. One of a later version has another \`type\`: leave it out. */
export type StreamChunk = Chunks[keyof Chunks];

/** The fields that the AI SDK encoder sends as the transient part \`data-<type>\`, by the type of the chunk. */
export const UI_FIELDS: Readonly<Record<string, readonly string[]>> = ${JSON.stringify(schema.ui_fields, null, 2)};

/** The chunks that readers show by this table alone: their type, and the line for people, or "". */
export const NOTICES = ${JSON.stringify(schema.notices, null, 2)} as const;

export type NoticeChunk = Chunks[keyof typeof NOTICES];

/** Codes of the service's errors. */
export type ServiceErrorCode =
${schema.codes.map((code: string) => `  | ${JSON.stringify(code)}`).join("\n")};

/** Fields that are left out on the wire where they equal these. */
export const DEFAULTS: {
  chunk: object;
  usage: object;
  file: object;
  question: object;
  response: object;
  types: Record<string, object>;
} = ${JSON.stringify(schema.defaults, null, 2)};
`;

if (process.argv.includes("--check")) {
  if (readFileSync(place, "utf8") !== text) {
    console.error("src/generated.ts is not what schema.json says: npm run generate");
    process.exit(1);
  }
} else {
  writeFileSync(place, text);
}
