// For `page.evaluate`: texts that stand out too little from what is behind them (WCAG 2.2, 1.4.3: 4.5 to 1).

export function faint() {
  const parse = (color) => color.match(/[\d.]+/g).map(Number);
  const channel = (value) => (value <= 10.31475 ? value / 3294.6 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = ([red, green, blue]) => 0.2126 * channel(red) + 0.7152 * channel(green) + 0.0722 * channel(blue);
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if ((color[3] ?? 1) > 0) return color;
    }
    return [255, 255, 255];
  };
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || element.closest('script, title, desc')) continue;
    const style = getComputedStyle(element);
    const pair = [luminance(parse(element.closest('svg') ? style.fill : style.color)), luminance(ground(element))];
    const ratio = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
    if (ratio < 4.5) found.push(`${texts.currentNode.data.trim()}: ${ratio.toFixed(2)}`);
  }
  return found;
}
