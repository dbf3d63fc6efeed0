// @ts-check
import { send } from "./api.js";
import { h } from "./dom.js";
import { t } from "./language.js";

const ACTIONS = { stop: "Stop after this step", save: "Save now", validate: "Validate now" };

/**
 * Buttons that ask a run for something after its current step.
 * @param {any} run
 */
export function controlBox(run) {
  const said = h("span", { class: "quiet", role: "status" });
  const buttons = Object.entries(ACTIONS).map(([action, label]) => {
    const act = async () => {
      if (action === "stop" && !window.confirm(t("Stop {0} after its current step?", run.name))) return;
      try {
        await send(`runs/${run.id}/control`, { action });
        said.textContent = t("asked: {0}", t(label));
      } catch (error) {
        said.textContent = error instanceof Error ? error.message : String(error);
      }
    };
    return h("button", { type: "button", on: { click: act } }, t(label));
  });
  return h("p", { class: "pages" }, ...buttons, said);
}
