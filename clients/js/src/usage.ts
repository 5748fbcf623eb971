// Usage on events that end a run: what `helix.stream.usage` makes of it in Python.
export interface Usage {
  prompt: number;
  completion: number;
  reasoning: number;
  cached: number;
}

export interface UsageFields {
  inputTokens: number;
  outputTokens: number;
  totalTokens: number;
  reasoningTokens?: number;
  cachedInputTokens?: number;
}

export const NO_USAGE: Usage = { prompt: 0, completion: 0, reasoning: 0, cached: 0 };

const tokens = (value: unknown): number => Number(value ?? 0);

/** The sum with the `usage` of a chunk, which may have none. */
export function withUsage(sum: Usage, chunk: unknown): Usage {
  const used = (chunk ?? {}) as Record<string, unknown>;
  return {
    prompt: sum.prompt + tokens(used["prompt_tokens"]),
    completion: sum.completion + tokens(used["completion_tokens"]),
    reasoning: sum.reasoning + tokens(used["reasoning_tokens"]),
    cached: sum.cached + tokens(used["cached_tokens"]),
  };
}

/** Tokens by the names of the AI SDK and AG-UI; undefined where nothing was used. */
export function usageFields({ prompt, completion, reasoning, cached }: Usage): UsageFields | undefined {
  if (prompt + completion === 0) return undefined;
  return {
    inputTokens: prompt,
    outputTokens: completion,
    totalTokens: prompt + completion,
    ...(reasoning > 0 && { reasoningTokens: reasoning }),
    ...(cached > 0 && { cachedInputTokens: cached }),
  };
}
