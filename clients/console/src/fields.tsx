// A form made of a JSON schema: fields for texts, numbers and choices, groups for objects, and lists that grow. The service checks
// the values. Its message names the fields that do not fit, and each of them shows its own part of it.
import type { Schema } from "./api.ts";
import { inline } from "./format.ts";
import { Icon, Text } from "./pieces.tsx";

/** What a person wrote, where it is not a value of its field's type yet. */
export class Unread {
  readonly text: string;
  readonly type: string;

  constructor(text: string, type: string) {
    this.text = text;
    this.type = type;
  }
}

type Fields = Record<string, unknown>;
/** What is wrong, by the place of the field, such as `lines.0.pieces`. */
export type Problems = ReadonlyMap<string, string>;
export const NO_PROBLEMS: Problems = new Map();

/** Several fields do not fit. */
export class UnfitError extends Error {
  readonly problems: Problems;

  constructor(problems: Problems) {
    super([...problems].map(([place, problem]) => `${place}: ${problem}`).join("; "));
    this.problems = problems;
  }
}

/** The fields that a message names, in the form that the service writes: `a.b: problem; c: problem`. */
export function problemsIn(message: string, value: Fields): Problems {
  const parts = message.split("; ").map((part) => /(?:^|: )([\w.-]+): ([^:]+)$/.exec(part));
  const found = parts.flatMap((part) => (part?.[1] && part[2] && known(value, part[1].split(".")) ? [[part[1], part[2]] as const] : []));
  return new Map(found);
}

function known(value: unknown, [name, ...rest]: readonly string[]): boolean {
  if (name === undefined) return true;
  if (typeof value !== "object" || value === null) return false;
  return rest.length === 0 || known((value as Fields)[name], rest);
}

/** The value of a form. Throws an `UnfitError` if a text is not of its type. */
export function valueOf(value: Fields): Fields {
  const problems = new Map<string, string>();
  const read = (one: unknown, place: string): unknown => {
    if (one instanceof Unread) return void problems.set(place, one.text === "" ? "is missing" : `must be of type ${one.type}`);
    if (Array.isArray(one)) return one.map((item, n) => read(item, below(place, n)));
    if (typeof one !== "object" || one === null) return one;
    const kept = Object.entries(one).filter(([, part]) => part !== undefined);
    return Object.fromEntries(kept.map(([name, part]) => [name, read(part, below(place, name))]));
  };
  const made = read(value, "") as Fields;
  if (problems.size > 0) throw new UnfitError(problems);
  return made;
}

const below = (place: string, name: string | number): string => (place === "" ? `${name}` : `${place}.${name}`);

/** The schema behind references. `optional`: null is allowed too. */
function resolved(schema: Schema | undefined, root: Schema): Schema & { optional?: boolean } {
  if (schema === undefined) return {};
  const name = schema.$ref?.replace("#/$defs/", "");
  if (name !== undefined) return { ...resolved(root.$defs?.[name], root), ...(schema.description && { description: schema.description }) };
  const options = schema.anyOf ?? schema.oneOf;
  const others = options?.filter((option) => option.type !== "null") ?? [];
  if (options !== undefined && others.length === 1) {
    return { ...resolved(others[0], root), ...(schema.description && { description: schema.description }), optional: others.length < options.length };
  }
  if (schema.allOf?.length === 1) return resolved(schema.allOf[0], root);
  return schema;
}

export const choicesOf = (schema: Schema | undefined): unknown[] | undefined =>
  schema?.enum ?? (schema?.type === "boolean" ? [true, false] : undefined);

function typeOf(schema: Schema, value: unknown): string {
  if (typeof schema.type === "string") return schema.type;
  return ["string", "number", "boolean"].includes(typeof value) ? typeof value : "JSON";
}

/** What a new field holds: the first of its choices, the fields of a group, or nothing. */
export function blank(given: Schema | undefined, root: Schema, required = true): unknown {
  const schema = resolved(given, root);
  if (schema.default !== undefined) return schema.default;
  if (!required || schema.optional) return undefined;
  const choices = choicesOf(schema);
  if (choices !== undefined) return choices[0];
  if (schema.properties !== undefined) return blankFields(schema, root);
  if (schema.type === "array") return [];
  return schema.type === "string" ? "" : new Unread("", String(schema.type ?? "JSON"));
}

export function blankFields(schema: Schema, root: Schema = schema): Fields {
  const names = Object.entries(schema.properties ?? {});
  return Object.fromEntries(names.map(([name, part]) => [name, blank(part, root, schema.required?.includes(name) ?? false)]));
}

interface GroupGiven {
  schema: Schema;
  value: Fields;
  change: (value: Fields) => void;
  problems: Problems;
  /** What the model gave, to show what a person changed. */
  before?: Fields;
  root?: Schema;
  place?: string;
}

export function FieldGroup({ schema, value, change, problems, before, root = schema, place = "" }: GroupGiven) {
  const names = [...new Set([...Object.keys(schema.properties ?? {}), ...Object.keys(value)])];
  if (names.length === 0) return <p class="quiet">It has no arguments.</p>;
  return (
    <div class="fields">
      {names.map((name) => (
        <Field
          key={name}
          name={name}
          schema={resolved(schema.properties?.[name], root)}
          required={schema.required?.includes(name) ?? name in (before ?? {})}
          value={value[name]}
          change={(next) => change({ ...value, [name]: next })}
          problems={problems}
          before={before && { value: before[name] }}
          root={root}
          place={below(place, name)}
        />
      ))}
    </div>
  );
}

interface FieldGiven {
  name: string;
  schema: Schema & { optional?: boolean };
  required: boolean;
  value: unknown;
  change: (value: unknown) => void;
  problems: Problems;
  before: { value: unknown } | undefined;
  root: Schema;
  place: string;
}

function Field(given: FieldGiven) {
  const { name, schema, value, change, problems, before, root, place } = given;
  const type = typeOf(schema, value);
  const group = schema.properties !== undefined && (isObject(value) || value === undefined);
  if (!group && !(schema.type === "array" && schema.items !== undefined && Array.isArray(value))) return <Single {...given} type={type} />;
  return (
    <fieldset class="group">
      <legend>
        <Name {...given} type={type} />
      </legend>
      {group && value === undefined && (
        <button type="button" class="small" onClick={() => change(blankFields(schema, root))}>
          <Icon name="plus" /> Add {name}
        </button>
      )}
      {group && isObject(value) && (
        <FieldGroup
          schema={schema}
          value={value}
          change={change}
          problems={problems}
          {...(isObject(before?.value) && { before: before.value })}
          root={root}
          place={place}
        />
      )}
      {Array.isArray(value) && <List {...given} value={value} />}
      <FieldProblem of={problems.get(place)} id={place} />
    </fieldset>
  );
}

function List({ name, schema, value, change, problems, before, root, place }: Omit<FieldGiven, "value"> & { value: unknown[] }) {
  const were = Array.isArray(before?.value) ? before.value : undefined;
  return (
    <>
      {value.map((item, n) => (
        <div class="list-item" key={n}>
          <Field
            name={`${name} ${n + 1}`}
            schema={resolved(schema.items, root)}
            required
            value={item}
            change={(next) => change(value.with(n, next))}
            problems={problems}
            before={were && n < were.length ? { value: were[n] } : undefined}
            root={root}
            place={below(place, n)}
          />
          <button type="button" class="small plain" aria-label={`Remove ${name} ${n + 1}`} onClick={() => change(value.toSpliced(n, 1))}>
            Remove
          </button>
        </div>
      ))}
      <button type="button" class="small" onClick={() => change([...value, blank(schema.items, root)])}>
        <Icon name="plus" /> Add to {name}
      </button>
    </>
  );
}

function Name({ name, schema, type }: { name: string; schema: Schema; type: string }) {
  return (
    <span>
      <Text of={name} /> <small>{type}</small>
      {schema.description && (
        <small class="quiet">
          {" · "}
          <Text of={schema.description} />
        </small>
      )}
    </span>
  );
}

function FieldProblem({ of, id }: { of: string | undefined; id: string }) {
  if (of === undefined) return null;
  return (
    <small class="bad-text" id={`problem-${id}`}>
      <Text of={of} />
    </small>
  );
}

const isObject = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Unread);
const textOf = (value: unknown): string =>
  value === undefined ? "" : value instanceof Unread ? value.text : typeof value === "string" ? value : JSON.stringify(value, null, 1);
const UNSET = "";

function Single({ name, schema, required, value, change, problems, before, place, type }: FieldGiven & { type: string }) {
  const problem = problems.get(place);
  const text = textOf(value);
  const write = (next: string) => change(type === "string" ? textValue(next, required) : parsedValue(next, type, required));
  const common = {
    ...(problem !== undefined && { "aria-invalid": true, "aria-describedby": `problem-${place}` }),
    value: text,
  };
  const choices = choicesOf(schema);
  const differs = before !== undefined && JSON.stringify(before.value) !== JSON.stringify(value instanceof Unread ? value.text : value);
  return (
    <label class="field">
      <Name name={name} schema={schema} type={type} />
      {choices !== undefined ? (
        <select {...common} onChange={(event) => change(choices.find((one) => String(one) === event.currentTarget.value))}>
          {(!required || value === undefined) && <option value={UNSET} />}
          {choices.map((choice) => (
            <option key={String(choice)} value={String(choice)}>
              {String(choice)}
            </option>
          ))}
        </select>
      ) : type === "string" && text.length < 60 && !text.includes("\n") ? (
        <input {...common} onInput={(event) => write(event.currentTarget.value)} />
      ) : type === "number" || type === "integer" ? (
        <input {...common} inputMode="decimal" onInput={(event) => write(event.currentTarget.value)} />
      ) : (
        <textarea {...common} rows={3} spellcheck={type === "string"} onInput={(event) => write(event.currentTarget.value)} />
      )}
      {differs && (
        <small class="was">
          The model asked for <Text of={before.value === undefined ? "nothing" : inline(before.value)} />
        </small>
      )}
      <FieldProblem of={problem} id={place} />
    </label>
  );
}

const textValue = (text: string, required: boolean): unknown => (text === "" && !required ? undefined : text);

function parsedValue(text: string, type: string, required: boolean): unknown {
  if (text.trim() === "") return required ? new Unread("", type) : undefined;
  try {
    const value: unknown = JSON.parse(text);
    const number = type === "number" || type === "integer";
    return number && typeof value !== "number" ? new Unread(text, type) : value;
  } catch {
    return new Unread(text, type);
  }
}
