
(() => {
  "use strict";
  const input = document.getElementById("search");
  const count = document.getElementById("count");
  const given = input.value;
  let rows = [];
  let names = [];
  let total = "";
  document.body.classList.add("live");
  let waiting = 0;
  const filter = () => {
    const wanted = input.value.toLowerCase();
    let shown = 0;
    rows.forEach((row, place) => {
      row.hidden = !names[place].includes(wanted);
      shown += row.hidden ? 0 : 1;
    });
    document.getElementById("none").hidden = shown > 0;
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

  // In the viewer's time zone, some thousand rows at a time: a long page stays usable meanwhile.
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";
  const two = (number) => String(number).padStart(2, "0");
  const localize = (times, start) => {
    for (const time of times.slice(start, start + 5000)) {
      const at = new Date(time.dateTime.replace(/\.\d+/, ""));
      if (Number.isNaN(at.getTime())) continue;
      const day = [String(at.getFullYear()).padStart(4, "0"), two(at.getMonth() + 1), two(at.getDate())];
      time.textContent = day.join("-") + " " + two(at.getHours()) + ":" + two(at.getMinutes());
    }
    if (start + 5000 < times.length) {
      requestAnimationFrame(() => localize(times, start + 5000));
    } else {
      document.getElementById("zone").textContent = "Times are in " + zone;
    }
  };

  // Again when the list was replaced
  const read = () => {
    rows = Array.from(document.querySelectorAll("#rows tr:not(.up)"));
    names = rows.map((row) => row.querySelector("bdi").textContent.toLowerCase());
    total = count.innerHTML;
    if (input.value !== input.defaultValue) filter();
    localize(Array.from(document.querySelectorAll("time")), 0);
  };
  document.addEventListener("refreshed", read);
  read();
})();
