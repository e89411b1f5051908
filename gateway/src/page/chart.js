// Charts: a read-out under the pointer and by the arrow keys, and copies as SVG and CSV.

const seriesOf = (plot) => JSON.parse(plot.closest('figure').dataset.chart);
const number = (value) => (value == null ? 'unknown' : value.toLocaleString('en', { maximumFractionDigits: 1 }));

/** The time of a bucket as the axis shows it: in the time zone of the host. */
function bucketTime({ from, step, offset }, at) {
  return new Date(from + step * at + offset * 60000).toISOString().slice(0, 16).replace('T', ' ');
}

function point(plot, at) {
  const series = seriesOf(plot);
  const count = series.lines[0]?.mean.length ?? 0;
  if (!count) return;
  at = Math.max(0, Math.min(count - 1, at));
  plot.dataset.at = at;
  let cursor = plot.querySelector('.cursor');
  if (!cursor) {
    cursor = document.createElementNS('http://www.w3.org/2000/svg', 'line');
    for (const [name, value] of Object.entries({ class: 'cursor', 'data-own': 'extra', y1: 12, y2: 142 })) cursor.setAttribute(name, value);
    plot.append(cursor);
  }
  const x = `${(100 * (at + 0.5)) / count}%`;
  cursor.setAttribute('x1', x);
  cursor.setAttribute('x2', x);
  const values = series.lines.map(({ name, min, mean, max }) => {
    if (mean[at] == null) return `${name ?? ''} no data`;
    const range = min && max && min[at] != null ? ` (${number(min[at])} to ${number(max[at])})` : '';
    return `${name ? `${name} ` : ''}${number(mean[at])}${range} ${series.unit}`;
  });
  const text = `${bucketTime(series, at)}  ${values.filter((value) => !/^\S+ 0 /.test(value)).slice(0, 6).join(', ')}`;
  plot.closest('figure').querySelector('.readout').textContent = text;
}

function unpoint(plot) {
  plot.querySelector('.cursor')?.remove();
  plot.closest('figure').querySelector('.readout').textContent = '';
}

document.addEventListener('pointermove', (event) => {
  const plot = event.target.closest?.('.plot');
  for (const other of document.querySelectorAll('.plot:has(.cursor)')) {
    if (other !== plot && other !== document.activeElement) unpoint(other);
  }
  if (!plot) return;
  const box = plot.getBoundingClientRect();
  const count = seriesOf(plot).lines[0]?.mean.length ?? 0;
  point(plot, Math.floor(((event.clientX - box.left) / box.width) * count));
});
document.addEventListener('focusout', (event) => event.target.matches?.('.plot') && unpoint(event.target));
document.addEventListener('keydown', (event) => {
  const plot = event.target.closest?.('.plot');
  const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -1e6, End: 1e6 }[event.key];
  if (!plot || !step) return;
  event.preventDefault();
  point(plot, Number(plot.dataset.at ?? 0) + step);
});

const STYLES = ['fill', 'stroke', 'stroke-width', 'stroke-dasharray', 'opacity', 'font-size', 'font-family', 'paint-order', 'vector-effect'];

/** The chart as a file of its own, as it looks now. */
function svgText(plot) {
  const copy = plot.cloneNode(true);
  copy.querySelectorAll('.cursor').forEach((cursor) => cursor.remove());
  const { width, height } = plot.getBoundingClientRect();
  const copies = copy.querySelectorAll('*');
  plot.querySelectorAll('*:not(.cursor)').forEach((node, at) => {
    const style = getComputedStyle(node);
    for (const name of STYLES) copies[at].setAttribute(name, style.getPropertyValue(name));
  });
  for (const [name, value] of Object.entries({ xmlns: 'http://www.w3.org/2000/svg', width, height })) copy.setAttribute(name, value);
  copy.prepend(document.querySelector('#patterns defs').cloneNode(true));
  return new XMLSerializer().serializeToString(copy);
}

/** The data of a chart. A name that a spreadsheet would evaluate is quoted. */
function csvText(series) {
  const cell = (text) => (/^[=+\-@]/.test(text) ? `'${text}` : text);
  const quote = (text) => (/[",\n]/.test(cell(text)) ? `"${cell(text).replaceAll('"', '""')}"` : cell(text));
  const columns = series.lines.flatMap(({ name, min, mean, max }) => [
    min && [`${name ? `${name} ` : ''}min`, min], [name ?? 'mean', mean], max && [`${name ? `${name} ` : ''}max`, max],
  ]).filter(Boolean);
  const times = series.lines[0]?.mean.map((_, at) => new Date(series.from + series.step * at).toISOString()) ?? [];
  const rows = times.map((time, at) => [time, ...columns.map(([, values]) => values[at] ?? '')].join(','));
  return [['time', ...columns.map(([name]) => quote(`${name} (${series.unit})`))].join(','), ...rows, ''].join('\r\n');
}

document.addEventListener('click', async (event) => {
  const button = event.target.closest?.('button[data-copy]');
  if (!button) return;
  const figure = button.closest('figure');
  const plot = figure.querySelector('.plot');
  const isSvg = button.dataset.copy === 'svg';
  const text = isSvg ? svgText(plot) : csvText(seriesOf(plot));
  try {
    await navigator.clipboard.writeText(text);
    say(`Copied as ${button.dataset.copy.toUpperCase()}.`);
    figure.querySelector('.readout').textContent = 'copied';
  } catch {
    // Without a clipboard, as over plain HTTP from another host, it becomes a file.
    const url = URL.createObjectURL(new Blob([text], { type: isSvg ? 'image/svg+xml' : 'text/csv' }));
    el('a', { href: url, download: `gpukill.${button.dataset.copy}` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }
});
