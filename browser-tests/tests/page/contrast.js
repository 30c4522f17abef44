// The texts that are visible: each with its contrast to the background behind it, by WCAG 2.
(() => {
  const channels = (color) => color.match(/[\d.]+/g).map(Number);
  const luminance = (color) => {
    const [red, green, blue] = channels(color).map((channel) => channel / 255)
      .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const background = (node) => {
    const color = getComputedStyle(node).backgroundColor;
    const [, , , alpha = 1] = channels(color);
    return alpha > 0 || !node.parentElement ? color : background(node.parentElement);
  };
  const hasText = (node) => [...node.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.data.trim());
  return [...document.body.querySelectorAll('*')]
    .filter((node) => hasText(node) && node.checkVisibility() && !node.matches('.hidden, script, style'))
    .map((node) => {
      const [darker, lighter] = [luminance(getComputedStyle(node).color), luminance(background(node))].sort((a, b) => a - b);
      return { text: node.textContent.trim(), contrast: (lighter + 0.05) / (darker + 0.05) };
    });
})()
