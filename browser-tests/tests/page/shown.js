// The texts of the page as the JSON of `GET /state`: from what a reader sees, not from attributes.
(() => {
  const text = (node) => node.textContent;
  const number = (node) => Number(text(node).replaceAll(',', ''));
  const byId = (id) => document.getElementById(id);
  const row = ({ cells: [place, club, gold, silver, bronze] }) =>
    ({ place: number(place), club: text(club), gold: number(gold), silver: number(silver), bronze: number(bronze) });
  const sale = (card) => {
    const field = (name) => card.querySelector(`[data-field=${name}]`);
    return {
      id: card.dataset.sale,
      name: text(field('name')),
      opens_at_ms: Date.parse(field('opens').dateTime),
      state: text(field('state')).toLowerCase().replace(' ', '_'),
      items: number(field('items')),
      left: number(field('left')),
      leaderboard: [...card.querySelector('tbody').rows].map(row),
    };
  };
  return {
    now_ms: Number(byId('clock').dataset.event),
    sales: [...document.querySelectorAll('[data-sale]')].map(sale),
    bought: number(byId('bought')),
    degraded: number(byId('degraded')),
    failed: number(byId('failed')),
    bought_per_second: number(byId('bought-per-second')),
    degraded_per_second: number(byId('degraded-per-second')),
    limiter: text(byId('limiter')),
  };
})()
