
(() => {
  "use strict";
  const input = document.getElementById("search");
  const rows = Array.from(document.querySelectorAll("#rows tr:not(.up)"));
  const names = rows.map((row) => row.querySelector("bdi").textContent.toLowerCase());
  const none = document.getElementById("none");
  const count = document.getElementById("count");
  const total = count.innerHTML;
  const given = input.value;
  document.body.classList.add("live");
  let waiting = 0;
  const filter = () => {
    const wanted = input.value.toLowerCase();
    let shown = 0;
    rows.forEach((row, place) => {
      row.hidden = !names[place].includes(wanted);
      shown += row.hidden ? 0 : 1;
    });
    none.hidden = shown > 0;
    if (wanted === "" || wanted === given.toLowerCase()) {
      count.innerHTML = total;
    } else {
      count.textContent = shown + " of " + rows.length + " shown";
    }
  };
  input.addEventListener("input", () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(filter);
  });
  if (input.value !== input.defaultValue) filter();
})();
