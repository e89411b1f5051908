// Acts in a personal gateway: shows what gpukilld plans, asks, and follows. Every text is set as text.

const mayAct = () => page.dataset.acts !== undefined;

function el(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (typeof value === 'function') node.addEventListener(key, value);
    else if (value !== false) node.setAttribute(key, value === true ? '' : value);
  }
  node.append(...children.flat().filter((child) => child != null));
  return node;
}

const gib = (bytes) => (bytes == null ? '?' : (bytes / 2 ** 30).toFixed(1));
const plural = (number, word, several = `${word}s`) => `${number} ${number === 1 ? word : several}`;
const clock = (time) => new Date(time).toLocaleString([], { dateStyle: 'short', timeStyle: 'short' });

function table(titles, rows) {
  const cells = (name, texts) => texts.map((text) => el(name, name === 'th' ? { scope: 'col' } : {}, text));
  const body = rows.map((row) => el('tr', {}, cells('td', row)));
  return el('div', { class: 'scroll' }, el('table', {}, el('thead', {}, el('tr', {}, cells('th', titles))), el('tbody', {}, body)));
}

/** A dialog; `fill` replaces its content. The focus returns to where it was. */
function openDialog(title) {
  const before = document.activeElement;
  const dialog = el('dialog', { 'aria-labelledby': 'dialog-title' });
  const close = () => dialog.close();
  dialog.addEventListener('close', () => {
    dialog.remove();
    if (before?.isConnected) before.focus();
    refresh();
  });
  const fill = (parts, buttons = []) => {
    const cancel = el('button', { type: 'button', click: close }, buttons.length ? 'Cancel' : 'Close');
    const heading = el('h2', { id: 'dialog-title' }, title);
    dialog.replaceChildren(heading, ...parts, el('div', { class: 'form' }, cancel, buttons));
    cancel.focus();
  };
  fill([el('p', { class: 'soft' }, 'One moment…')]);
  document.body.append(dialog);
  dialog.showModal();
  return { dialog, fill };
}

const refusal = (problem) => [
  el('p', { class: 'bad', role: 'alert' }, problem.detail ?? String(problem)),
  problem.hint && el('p', { class: 'soft' }, problem.hint),
].filter(Boolean);

/** Plans the end of processes, asks, ends them, and shows what came back. */
async function endProcesses(request) {
  const { dialog, fill } = openDialog('End processes');
  const options = { scope: 'process', force: false, ...request };
  const plan = async () => {
    try {
      showPlan(await ask('/api/v1/kill/plan', options));
    } catch (problem) {
      fill([...refusal(problem), choices()]);
    }
  };
  const choices = () => {
    const scopes = { process: 'this process alone', tree: 'with its descendants', job: 'its whole job', container: 'its whole container' };
    const scope = el('select', { change: () => { options.scope = scope.value; plan(); } },
      Object.entries(scopes).map(([name, text]) => el('option', { value: name, selected: name === options.scope }, text)));
    const force = el('input', { type: 'checkbox', checked: options.force, change: () => { options.force = force.checked; plan(); } });
    return el('div', { class: 'legend' }, el('label', {}, 'Scope', scope), el('label', {}, force, 'SIGKILL for what survives'));
  };
  const showPlan = (planned) => {
    const held = (target) => target.holds.map((hold) => `GPU ${hold.gpu_index} ${gib(hold.memory_bytes)} GiB`).join(', ');
    const what = (target) => (target.planned_action === 'end' ? target.signals.join(', ') : `${target.planned_action}: ${target.why ?? ''}`);
    const rows = planned.targets.map((target) => [target.pid, target.command ?? target.name, target.owner ?? '?', held(target), what(target)].map((text) => el('bdi', {}, String(text))));
    const ends = planned.targets.filter((target) => target.planned_action === 'end').length;
    const rest = planned.remaining_jobs.map((job) => el('p', { class: 'warn' }, `${plural(job.remaining_processes, 'process', 'processes')} of the job ${job.job} would stay`));
    const act = el('button', { type: 'button', class: 'danger', click: () => carryOut(planned.plan_id) }, `End ${plural(ends, 'process', 'processes')}`);
    fill([table(['PID', 'Process', 'Owner', 'Holds', 'What happens'], rows), ...rest, choices()], planned.plan_id ? [act] : []);
  };
  const carryOut = async (plan_id) => {
    try {
      let report = await ask('/api/v1/kill/act', { plan_id });
      for (;;) {
        showReport(report);
        if (report.exit_code != null || !dialog.open) return;
        await new Promise((done) => setTimeout(done, 400));
        report = await ask(`/api/v1/kill/report/${report.operation_id}`);
      }
    } catch (problem) {
      fill(refusal(problem));
    }
  };
  const showReport = (report) => {
    const rows = report.outcomes.map((it) => [it.pid, it.command ?? it.name, it.outcome, [it.signal, it.after_ms != null && `${(it.after_ms / 1000).toFixed(1)} s`, it.why].filter(Boolean).join(', ')].map((text) => el('bdi', {}, String(text))));
    const memory = report.memory.map((it) => el('li', {}, `GPU ${it.gpu_index}: ${gib(it.returned_bytes)} of ${gib(it.held_bytes)} GiB are free again`));
    const stage = { ending: 'Ending…', reclaiming: 'Waiting for the memory…', done: 'Done', interrupted: 'Interrupted' }[report.stage] ?? report.stage;
    const again = report.respawned.map((it) => el('p', { class: 'warn' }, `${it.pid} ${it.name} was started in its place${it.unit ? ` by ${it.unit}` : ''}`));
    fill([el('p', { role: 'status' }, stage), table(['PID', 'Process', 'Outcome', ''], rows), el('ul', {}, memory), ...again]);
  };
  await plan();
}

/** Postpones the end of a job, after showing until when. */
async function snooze(pid) {
  const { fill } = openDialog('More time');
  const lines = (answer) => answer.rules.map((rule) => el('p', {}, `${rule.rule}: not before ${clock(rule.until)}; ${plural(rule.snoozes_left, 'snooze')} left then`));
  try {
    const planned = await ask('/api/v1/guard/snooze', { pid, dry_run: true });
    const act = async () => {
      try {
        fill([el('p', { role: 'status', class: 'good' }, 'Postponed.'), ...lines(await ask('/api/v1/guard/snooze', { pid }))]);
      } catch (problem) {
        fill(refusal(problem));
      }
    };
    fill(lines(planned), [el('button', { type: 'button', class: 'primary', click: act }, 'Postpone')]);
  } catch (problem) {
    fill(refusal(problem));
  }
}

/** Edits the rules, after showing the difference. */
async function edit(path, change) {
  const { fill } = openDialog('Edit the rules');
  const line = (text) => el('span', { class: { '+': 'add', '-': 'del' }[text[0]] ?? '' }, `${text}\n`);
  const shown = (answer) => [
    answer.difference ? el('pre', { class: 'panel' }, answer.difference.split('\n').map(line)) : el('p', {}, 'Nothing changes: the rules say so already.'),
    ...answer.warnings.map((text) => el('p', { class: 'warn' }, text)),
  ];
  try {
    const planned = await ask(path, { ...change, dry_run: true });
    const act = async () => {
      try {
        const revision = planned.previous_revision;
        fill([el('p', { role: 'status', class: 'good' }, 'The rules are changed.'), ...shown(await ask(path, { ...change, ...(revision && { revision }) }))]);
      } catch (problem) {
        fill(refusal(problem));
      }
    };
    fill(shown(planned), planned.difference ? [el('button', { type: 'button', class: 'primary', click: act }, 'Apply')] : []);
  } catch (problem) {
    fill(refusal(problem));
  }
}

/** Applies pasted rules to the past, and shows what they would have done. */
async function replay(form) {
  const result = document.getElementById('replayed');
  result.replaceChildren(el('p', { class: 'busy' }, 'gpukilld reads the history: this may take a minute.'));
  try {
    const { rules, hours } = form.elements;
    const report = await ask('/api/v1/guard/replay', { rules: rules.value, hours: Number(hours.value) });
    const outcomes = report.outcomes.map((it) => [it.rule, it.warned, it.ended, `${it.freed_gpu_hours.toFixed(1)} GPU-h`, it.ended_busy ? `${it.ended_busy}, look at these` : '0'].map(String));
    const steps = report.records.filter((it) => it.step === 'warned' || it.step === 'ended');
    const process = (it) => (it.victim?.procs[0] ?? it.evidence.procs[0])?.process_name ?? it.subject;
    const records = steps.map((it) => [clock(it.timestamp), it.owner ?? it.subject, process(it), it.rule, it.step, it.victim?.busy ? 'busy' : ''].map((text) => el('bdi', {}, String(text))));
    result.replaceChildren(
      el('p', { role: 'status' }, `${plural(report.people, 'person', 'people')}, ${plural(report.runs, 'process run')}, ${plural(report.rules, 'rule')}; ${report.evaluated} samples evaluated`),
      outcomes.length ? table(['Rule', 'Warned', 'Ended', 'Freed', 'Busy when ended'], outcomes) : el('p', {}, 'Nobody would have been warned or ended.'),
      records.length ? table(['When', 'Who', 'Process', 'Rule', 'Step', ''], records) : '',
      ...report.not_evaluated.map((it) => el('p', { class: 'soft' }, `Not evaluated: ${it.rule ?? it.subject}: ${it.why}`)),
    );
  } catch (problem) {
    result.replaceChildren(...refusal(problem));
  }
}

document.addEventListener('click', (event) => {
  const summary = event.target.closest?.('details.act > summary');
  if (!summary || !mayAct()) return;
  event.preventDefault();
  const { end, snooze: pid } = summary.parentElement.dataset;
  if (end) endProcesses(JSON.parse(end));
  else if (pid) snooze(Number(pid));
});
document.addEventListener('submit', (event) => {
  const form = event.target;
  if (form.dataset.replay !== undefined) {
    event.preventDefault();
    replay(form);
  } else if (form.dataset.edit) {
    event.preventDefault();
    edit(form.dataset.edit, Object.fromEntries(new FormData(form)));
  }
});
