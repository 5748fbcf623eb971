// Whether who signed in may read the fleet and change budgets: the page shows others nothing of it.
import { effect, signal } from "@preact/signals";
import { HelixError, phase } from "./api.ts";

export const operator = signal(false);
/** Whether the sessions of all users are shown. */
export const everybody = signal(false);

effect(() => {
  if (phase.value.is !== "ready") return;
  phase.value.client
    .whoami()
    .then((who) => {
      operator.value = who.operator === true; // a service of an older version does not say
      everybody.value = operator.value && who.principal === null;
    })
    .catch((error: unknown) => {
      if (!(error instanceof HelixError)) throw error;
    });
});
