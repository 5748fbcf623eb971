// The questions of tools, as pages show them. They are those of `helix.stream.ui_calls` in Python.
import type { Call } from "./conversation/items.ts";
import type { AskedQuestion } from "./generated.ts";

/** The name of the tool in the AI SDK's part of a question. */
export const QUESTION = "question";

/** The id on a page of a round of questions. `shown`: the id of the call that asks them. */
export const questionId = (shown: string, round: number): string => `${shown}?${round}`;

/** The question as pages get it: its text, its schema, and why the last answer did not fit. */
export const shownQuestion = ({ text, answer_schema: schema, problem }: AskedQuestion): Record<string, unknown> =>
  problem === null || problem === undefined ? { text, schema } : { text, schema, problem };

/** The JSON schema of the response: that of a single question, or a list of them. */
export function answersSchema(questions: readonly AskedQuestion[]): Record<string, unknown> {
  const schemas = questions.map((question) => question.answer_schema);
  const [only] = schemas;
  return schemas.length === 1 && only !== undefined ? only : { type: "array", prefixItems: schemas, minItems: schemas.length };
}

type Emit = (part: Record<string, unknown>) => void;

/** The open questions of a page of the AI SDK. */
export class QuestionParts {
  readonly #emit: Emit;
  readonly #open = new Map<string, { toolCallId: string; asked: readonly AskedQuestion[] }>();

  constructor(emit: Emit) {
    this.#emit = emit;
  }

  /** Whether the call with this id on the page waits for answers. */
  isOpen(shown: string): boolean {
    return this.#open.has(shown);
  }

  ask(shown: string, { questions, round }: Call): void {
    const toolCallId = questionId(shown, round);
    this.#open.set(shown, { toolCallId, asked: questions });
    const input = { questions: questions.map(shownQuestion) };
    this.#emit({ type: "tool-input-available", toolCallId, toolName: QUESTION, input, dynamic: true });
  }

  /** Show the answers to the call's questions, if it had any. `error`: why there are none. */
  close(shown: string, { questions }: Call, error?: string): void {
    const open = this.#open.get(shown);
    this.#open.delete(shown);
    if (open === undefined) return;
    const { toolCallId, asked } = open;
    if (error !== undefined) return this.#emit({ type: "tool-output-error", toolCallId, errorText: error, dynamic: true });
    const key = ({ text, answer_schema }: AskedQuestion) => JSON.stringify([text, answer_schema]);
    const given = new Map(questions.map((question) => [key(question), question.data]));
    const answers = asked.map((question) => given.get(key(question)) ?? null);
    const output = answers.length === 1 ? answers[0] : answers;
    this.#emit({ type: "tool-output-available", toolCallId, output, dynamic: true });
  }
}
