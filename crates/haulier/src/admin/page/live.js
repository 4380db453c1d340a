// Requests this page each second and replaces the sections that have changed.
(() => {
  const pace = 1000;
  const note = document.getElementById('live');
  let paused = false;
  let lost = 0;

  const isSelecting = (section) => {
    const selection = getSelection();
    return !selection.isCollapsed && section.contains(selection.anchorNode);
  };

  // PHP and compression have a section only if there are figures.
  const swap = (fresh) => {
    document.title = fresh.title;
    const main = document.querySelector('main');
    const wanted = [...fresh.querySelectorAll('[data-live]')];
    for (const section of main.querySelectorAll('[data-live]')) {
      if (!wanted.some((other) => other.id === section.id)) section.remove();
    }
    for (const [place, section] of wanted.entries()) {
      const old = document.getElementById(section.id);
      // Unfolded parts stay unfolded.
      for (const open of old?.querySelectorAll('details[open]') ?? []) {
        const same = section.querySelector(`details[data-of="${CSS.escape(open.dataset.of)}"]`);
        if (same) same.open = true;
      }
      if (!old) main.insertBefore(document.adoptNode(section), main.children[place - 1] ?? null);
      else if (!isSelecting(old) && old.innerHTML !== section.innerHTML) old.replaceWith(document.adoptNode(section));
    }
  };

  const refresh = async () => {
    if (paused || document.hidden) return;
    const answer = await fetch(location.href, { cache: 'no-store', signal: AbortSignal.timeout(5 * pace) });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    swap(new DOMParser().parseFromString(await answer.text(), 'text/html'));
  };

  const say = (words, isLost) => {
    if (note.firstChild.data !== words) note.firstChild.data = words;
    document.body.classList.toggle('lost', isLost);
  };

  const tick = async () => {
    try {
      await refresh();
      lost = 0;
      say(paused ? 'Paused. ' : 'New figures each second. ', false);
    } catch {
      lost += 1;
      if (lost > 2) say('haulier does not answer: these figures are old. ', true);
    }
    setTimeout(tick, pace);
  };

  const button = document.createElement('button');
  button.type = 'button';
  button.textContent = 'Pause';
  button.addEventListener('click', () => {
    paused = !paused;
    button.textContent = paused ? 'Go on' : 'Pause';
  });
  note.append(button);
  setTimeout(tick, pace);
})();
