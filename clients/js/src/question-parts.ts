// The questions of tools, as pages show them. They are those of `helix.stream.ui_calls` in Python.
import type { Call } from "./conversation/items.ts";
import type { AskedQuestion, CallResponse } from "./generated.ts";

/** The name of the tool in the AI SDK's part of a question. */
export const QUESTION = "question";

/** The name in a message's metadata of the users who responded, by the ids of calls and of rounds of questions. */
export const ANSWERED_BY = "answeredBy";

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

/** The questions of a call by the round in which they were asked. */
export function roundsOf(questions: readonly AskedQuestion[]): [number, AskedQuestion[]][] {
  const rounds: [number, AskedQuestion[]][] = [];
  for (const question of questions) {
    const last = rounds.at(-1);
    if (last !== undefined && last[0] === question.round) last[1].push(question);
    else rounds.push([question.round, [question]]);
  }
  return rounds;
}

/** The answers of a round: that to a single question, or a list of them. */
export function answersOf(questions: readonly AskedQuestion[]): unknown {
  const answers = questions.map(({ data }) => data ?? null);
  return answers.length === 1 ? answers[0] : answers;
}

/** The known users who responded, by the id on a page of the call or of its round of questions. */
export function peopleOf(
  shown: string,
  questions: readonly AskedQuestion[],
  responses: readonly CallResponse[],
): Record<string, string> {
  const found: Record<string, string> = {};
  for (const { by, round } of questions) if (by !== null) found[questionId(shown, round)] = by;
  for (const { by } of responses) if (by !== null) found[shown] = by;
  return found;
}

/** A round of questions that has answers, as an AG-UI front end shows it: a call of its own, and the message with the answers. */
export interface AnsweredRound {
  id: string;
  text: string;
  result: { id: string; role: "tool"; toolCallId: string; content: string };
}

/** The rounds of a call's questions that have answers. Rows of earlier versions have no rounds. */
export function answeredRounds(shown: string, questions: readonly AskedQuestion[]): AnsweredRound[] {
  const rounds = roundsOf(questions).filter(([round, asked]) => round > 0 && asked.every(({ answered }) => answered));
  return rounds.map(([round, asked]) => {
    const id = questionId(shown, round);
    const answers = asked.map(({ data, by, at, timed_out }) => ({ answer: data ?? null, by, at, timedOut: timed_out }));
    const result = { id: `${id}/result`, role: "tool" as const, toolCallId: id, content: JSON.stringify(answers) };
    return { id, text: JSON.stringify({ questions: asked.map(shownQuestion) }), result };
  });
}

type Emit = (part: Record<string, unknown>) => void;

/** The open questions of a page of the AI SDK. */
export class QuestionParts {
  readonly #emit: Emit;
  readonly #people: Record<string, string> = {};
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
    const given = new Map(questions.map((question) => [key(question), question]));
    const output = answersOf(asked.map((question) => given.get(key(question)) ?? question));
    this.#emit({ type: "tool-output-available", toolCallId, output, dynamic: true });
  }

  /** Name the users who responded to the call, in the metadata of the page's message. */
  namePeople(shown: string, { questions, responses }: Call): void {
    const found = Object.entries(peopleOf(shown, questions, responses));
    if (found.every(([id, by]) => this.#people[id] === by)) return;
    for (const [id, by] of found) this.#people[id] = by;
    this.#emit({ type: "message-metadata", messageMetadata: { [ANSWERED_BY]: { ...this.#people } } });
  }
}
