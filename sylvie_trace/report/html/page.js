"use strict";
const config = { responsive: true, displaylogo: false, displayModeBar: false };
const ink = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
function themed(layout) {
  const soft = ink("--soft"), grid = ink("--grid"), panel = ink("--panel");
  const made = Object.assign({}, layout, { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)" });
  made.font = { family: getComputedStyle(document.body).fontFamily, size: 12, color: ink("--ink") };
  made.hoverlabel = { bgcolor: panel, bordercolor: grid, font: { color: ink("--ink") } };
  for (const key of Object.keys(made)) if (/^[xy]axis\d*$/.test(key))
    made[key] = Object.assign({}, made[key], { gridcolor: grid, zerolinecolor: grid, linecolor: soft, tickcolor: soft });
  // The chosen button is always nearly white: the others are light too, in both themes.
  for (const menu of made.updatemenus || []) Object.assign(menu, { bgcolor: "#ccd2d8", bordercolor: grid, font: { color: "#1f2328", size: 11 } });
  return made;
}
function coloured(data) { // the mean over bars is drawn in the page's ink
  for (const trace of data) if (trace.meta === "ink" && trace.line) trace.line.color = ink("--mean");
  return data;
}
function drawn(draw, figure) { coloured(figure.data); draw(figure); }
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const div of document.querySelectorAll(".plotly-graph-div"))
    if (div.data) Plotly.react(div, coloured(div.data), themed(div.layout), config);
});
