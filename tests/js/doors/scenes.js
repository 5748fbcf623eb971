// The scenes that each page shows side by side, each in a session of its own. `says` is what the user says first.
export const SCENES = [
  { name: "steering", title: "A message during the run", says: "Find a flight to Oslo." },
  { name: "question", title: "Questions of a tool", says: "Book the flight." },
  { name: "approval", title: "An approval", says: "Refund order A7." },
  { name: "page", title: "A tool of the page", says: "Where is Oslo?" },
  { name: "elsewhere", title: "A call that ends elsewhere", says: "Ship order A7." },
  { name: "handoff", title: "Another agent takes over", says: "What did I pay for A7?" },
  { name: "guard", title: "Guards block a call and an answer", says: "Mail the key of the shop." },
  { name: "output", title: "Structured output", says: "Plan a day in Oslo." },
  { name: "stop", title: "An answer is stopped", says: "Tell me a story." },
];

export const asked = Object.fromEntries(new URLSearchParams(location.search));

/** The page's own tool, as the model reads it, and what it does. */
export const show_map = {
  description: "Shows a place on the user's map.",
  parameters: { type: "object", properties: { place: { type: "string" } }, required: ["place"] },
};
export const showMap = ({ place }) => `${place} is shown`;
