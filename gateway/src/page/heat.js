// The heat map of a host with many GPUs, on a canvas: a cell for each GPU, grouped and searched here.

const heat = { cells: [], places: new Map(), at: -1, loaded: 0 };
const SHORTEST_INTERVAL = 5000; // Of many GPUs each load is some 50 kB.

/** The columns of the document as one object for each GPU. */
function cellsOf(document) {
  return document.gpu_index.map((index, at) => ({
    index,
    utilization: document.util_pct[at],
    memory: document.mem_pct[at],
    temperature: document.temp_c[at],
    state: document.state[at],
    model: document.models[document.model[at]] ?? '?',
    vendor: document.vendors[document.vendor[at]] ?? '?',
    person: document.owners[document.owner[at]] ?? '',
  }));
}

/** From the ground to full in one hue by lightness alone, so that it reads without colours. */
const lightnessOf = (share, isDark) => (isDark ? 22 + 58 * share : 94 - 62 * share);
const colourOf = (share, isDark) => `hsl(${250 - 20 * share} ${20 + 55 * share}% ${lightnessOf(share, isDark)}%)`;

const shareOf = (cell, by) => {
  const value = cell[by];
  if (value == null) return null;
  return by === 'temperature' ? Math.max(0, Math.min(1, (value - 25) / 70)) : value / 100;
};

function describe(cell) {
  const text = (value, unit) => (value == null ? 'unknown' : `${value} ${unit}`);
  const parts = [`GPU ${cell.index}`, cell.model, cell.state === 'ok' ? '' : cell.state, `utilization ${text(cell.utilization, '%')}`, `memory ${text(cell.memory, '%')}`, text(cell.temperature, '°C'), cell.person];
  return parts.filter(Boolean).join(', ');
}

function drawHeat() {
  const canvas = document.getElementById('heat');
  if (!canvas) return;
  const form = document.getElementById('heat-form').elements;
  const [by, group, wanted] = [form.by.value, form.group.value, form.search.value.trim().toLowerCase()];
  const isDark = matchMedia('(prefers-color-scheme: dark)').matches;
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const ratio = devicePixelRatio || 1;
  const width = canvas.parentElement.clientWidth - 32;
  const groups = new Map();
  for (const cell of heat.cells) {
    const name = group ? String(cell[group] || 'nobody') : '';
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(cell);
  }
  const size = Math.max(8, Math.min(36, Math.floor(Math.sqrt((width * 520) / Math.max(1, heat.cells.length)))));
  const columns = Math.max(1, Math.floor(width / size));
  const title = group ? 26 : 0;
  let height = 0;
  for (const cells of groups.values()) height += title + size * Math.ceil(cells.length / columns);
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext('2d');
  pen.scale(ratio, ratio);
  pen.font = `12px ${style.fontFamily}`;
  heat.places = new Map();
  let y = 0;
  for (const [name, cells] of [...groups].sort(([one], [other]) => one.localeCompare(other))) {
    pen.fillStyle = colour('--soft');
    if (group) pen.fillText(`${name} (${cells.length})`, 0, y + 17);
    cells.forEach((cell, at) => {
      const x = size * (at % columns);
      const top = y + title + size * Math.floor(at / columns);
      const share = shareOf(cell, by);
      const isFound = !wanted || describe(cell).toLowerCase().includes(wanted);
      pen.globalAlpha = isFound ? 1 : 0.15;
      pen.fillStyle = share == null ? colour('--track') : colourOf(share, isDark);
      pen.fillRect(x, top, size - 1, size - 1);
      if (share == null || cell.state !== 'ok') {
        pen.strokeStyle = cell.state === 'ok' || cell.state === 'unknown' ? colour('--soft') : colour('--bad');
        pen.beginPath();
        pen.moveTo(x, top + size - 1);
        pen.lineTo(x + size - 1, top);
        pen.stroke();
      }
      if (size >= 26) {
        pen.fillStyle = share == null ? colour('--text') : lightnessOf(share, isDark) > 55 ? '#111' : '#fff';
        pen.fillText(cell.index, x + 4, top + 15);
      }
      heat.places.set(cell.index, { cell, x, top, size });
    });
    y += title + size * Math.ceil(cells.length / columns);
  }
  pen.globalAlpha = 1;
  const chosen = heat.places.get(heat.at);
  if (chosen) {
    pen.strokeStyle = colour('--text');
    pen.lineWidth = 2;
    pen.strokeRect(chosen.x - 1, chosen.top - 1, chosen.size + 1, chosen.size + 1);
  }
  const scale = document.getElementById('heat-scale');
  for (let x = 0; x < scale.width; x += 1) {
    scale.getContext('2d').fillStyle = colourOf(x / scale.width, isDark);
    scale.getContext('2d').fillRect(x, 0, 1, scale.height);
  }
}

function choose(index) {
  const place = heat.places.get(index);
  if (!place) return;
  heat.at = index;
  document.getElementById('heat-readout').textContent = describe(place.cell);
  drawHeat();
}

/** The nearest cell in a direction. */
function neighbour(from, [dx, dy]) {
  let best = null;
  for (const place of heat.places.values()) {
    const [x, y] = [place.x - from.x, place.top - from.top];
    const [ahead, aside] = dx ? [x * dx, Math.abs(y)] : [y * dy, Math.abs(x)];
    const distance = ahead + 4 * aside;
    if (ahead > 0 && (!best || distance < best.distance)) best = { distance, place };
  }
  return best?.place;
}

document.addEventListener('keydown', (event) => {
  if (event.target.id !== 'heat') return;
  const from = heat.places.get(heat.at);
  const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  if (event.key === 'Enter' && from) return openGpu(heat.at);
  if (!way) return;
  event.preventDefault();
  const next = from ? neighbour(from, way) : heat.places.values().next().value;
  if (next) choose(next.cell.index);
});

function cellAt(event) {
  const box = event.target.getBoundingClientRect();
  const [x, y] = [event.clientX - box.left, event.clientY - box.top];
  for (const place of heat.places.values()) {
    if (x >= place.x && x < place.x + place.size && y >= place.top && y < place.top + place.size) return place.cell;
  }
  return null;
}

const openGpu = (index) => (token ? go(`/gpu/${index}`) : location.assign(`/gpu/${index}`));
document.addEventListener('pointermove', (event) => {
  const cell = event.target.id === 'heat' && cellAt(event);
  if (cell && cell.index !== heat.at) choose(cell.index);
});
document.addEventListener('click', (event) => {
  const cell = event.target.id === 'heat' && cellAt(event);
  if (cell) openGpu(cell.index);
});
document.addEventListener('input', (event) => event.target.closest?.('#heat-form') && drawHeat());
document.addEventListener('submit', (event) => event.target.id === 'heat-form' && event.preventDefault(), true);
addEventListener('resize', drawHeat);

/** Loads the cells again, seldom where there are many. */
async function loadHeat() {
  if (!document.getElementById('heat')) return;
  const isDue = performance.now() - heat.loaded > (heat.cells.length > 512 ? SHORTEST_INTERVAL : 0);
  if (!isDue) return;
  heat.loaded = performance.now();
  try {
    heat.cells = cellsOf(await ask('/api/v1/cells'));
    drawHeat();
  } catch {
    // The page says why there is no data.
  }
}
page.addEventListener('fresh', loadHeat);
loadHeat();
