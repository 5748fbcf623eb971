// `useChat` without React: the SDK's own chat on plain variables.
export const plainChat = (AbstractChat) =>
  class extends AbstractChat {
    constructor(options) {
      const state = {
        messages: options.messages ?? [],
        status: "ready",
        error: undefined,
        pushMessage: (message) => (state.messages = [...state.messages, message]),
        popMessage: () => (state.messages = state.messages.slice(0, -1)),
        replaceMessage: (index, message) => (state.messages = state.messages.with(index, structuredClone(message))),
        snapshot: (value) => structuredClone(value),
      };
      super({ ...options, state });
    }
  };
