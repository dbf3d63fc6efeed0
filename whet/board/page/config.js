// @ts-check
import { ask } from "./api.js";
import { fill, h } from "./dom.js";
import { chooser, form } from "./filters.js";
import { t } from "./language.js";
import { go } from "./place.js";

/**
 * Config: what a run's config changes, and how it differs from another run's.
 * @param {import("./main.js").View} view
 */
export async function showConfig(view) {
  const { query, run } = view;
  const other = query.get("other") || "";
  const show = query.get("show") || (other ? "differs" : "changed");
  const runs = await view.runs();
  /** @type {[string, string][]} */
  const others = [["", t("no other run")], ...runs.filter((each) => each.id !== run).map((each) => /** @type {[string, string]} */ ([each.id, each.name]))];
  /** @type {[string, string][]} */
  const kinds = [["changed", t("not at their defaults")], ["all", t("all")], ...(other ? [/** @type {[string, string]} */ (["differs", t("different in the other run")])] : [])];
  const search = form(
    (values) => go("config", { run, ...values, show: values.other === other ? values.show : "" }),
    chooser(t("Beside"), "other", other, others),
    chooser(t("Keys"), "show", show, kinds),
  );
  const rows = await ask(`runs/${run}/config`, { other });
  const shown = rows.filter((/** @type {any} */ row) => show === "all" || row[show]);
  const lines = shown.map((/** @type {any} */ row) =>
    h(
      "tr",
      {},
      h("td", { class: "name", title: row.help }, row.key),
      h("td", { class: "value", "data-label": t("value") }, h("code", {}, row.value ?? "–")),
      h("td", { class: "value quiet", "data-label": t("default") }, h("code", {}, row.default ?? "–")),
      other ? h("td", { class: "value", "data-label": t("other run") }, h("code", {}, row.other ?? "–")) : null,
    ),
  );
  const head = ["key", "value", "default", ...(other ? ["other run"] : [])].map((name) => h("th", {}, t(name)));
  const table = h("div", { class: "wide" }, h("table", { class: "stack" }, h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...lines)));
  fill(view.element, search, h("p", { class: "quiet", role: "status" }, t("{0} of {1} keys", shown.length, rows.length)), table);
  return null;
}
