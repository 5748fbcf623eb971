// Tools that the page executes: a run declares them, and its calls wait for their results.
import { HelixError } from "./errors.ts";
import type { AgentResult, FrontendTool, Pending } from "./generated.ts";
import type { RunHandle } from "./handle.ts";

export interface PageTool {
  /** What the tool does, for the model. */
  description?: string;
  /** The JSON schema of the arguments, which are an object. Default: a tool without arguments. */
  parameters?: object;
  /** Executes a call for `answerCalls`. The result is JSON; an error that it throws is what the model reads. */
  execute?: (args: Record<string, unknown>, call: Pending) => unknown;
}

/** Tools by the name that the model calls. */
export type PageTools = Record<string, PageTool>;

/** The tools as `run`, `resume` and `retry` declare them: `client.run(agent, message, { tools: toolsOf(tools) })`. */
export const toolsOf = (tools: PageTools): FrontendTool[] =>
  Object.entries(tools).map(([name, { description = "", parameters = {} }]) => ({
    name,
    description,
    parameters: parameters as FrontendTool["parameters"],
  }));

/**
 * Execute the calls that the run waits for, answer them, and go on until a run ends without one: its result. Calls of one
 * answer are executed at the same time. Other calls keep waiting: the result is then `paused`, and has them in `pending`.
 */
export async function answerCalls(handle: RunHandle, tools: PageTools): Promise<AgentResult> {
  while (true) {
    const result = await handle.result();
    const calls = (result.pending ?? []).filter(({ kind, tool_name }) => kind === "client" && tools[tool_name]?.execute);
    if (result.status !== "paused" || calls.length === 0) return result;
    const given = await Promise.all(calls.map(async (call) => [call.call_id, await execute(tools, call)] as const));
    for (const [call_id, answer] of given) {
      try {
        handle = await handle.answer(call_id, answer);
      } catch (error) {
        if (!(error instanceof HelixError) || error.code !== "call_not_pending") throw error; // another page was quicker
        handle = await handle.current();
      }
    }
  }
}

async function execute(tools: PageTools, call: Pending): Promise<{ approved: boolean; data?: unknown; reason?: string }> {
  try {
    return { approved: true, data: (await tools[call.tool_name]?.execute?.(call.arguments ?? {}, call)) ?? null };
  } catch (error) {
    return { approved: false, reason: error instanceof Error ? error.message : String(error) };
  }
}
