// Numbers as people say them. The exact value is always a hover or a column away.
const COUNT = new Intl.NumberFormat("en-US");
const UNITS = [[86_400_000, "d"], [3_600_000, "h"], [60_000, "min"], [1_000, "s"], [1, "ms"]];

/** 9,100,000; unknown is a dash. Numbers above 2^53 come as texts and stay exact. */
export function count(number) {
  if (number === null || number === undefined) return "–";
  return COUNT.format(typeof number === "string" ? BigInt(number) : number);
}

/** "1 partition", "2 partitions". */
export const many = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
/** "1 record", "1,200 records". */
export function counted(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** 1,536 is "1.5 KiB". */
export function bytes(number) {
  if (number === null || number === undefined) return "–";
  let value = number;
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (Math.abs(value) < 1024 || unit === "TiB") return `${unit === "B" ? value : value.toFixed(value < 10 ? 1 : 0)} ${unit}`;
    value /= 1024;
  }
}

/** 90,061,000 ms is "1 d 1 h": the two largest units. */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  const parts = [];
  let rest = Math.abs(Math.round(ms));
  for (const [size, unit] of UNITS) {
    if (parts.length === 2 || (parts.length === 1 && unit === "ms")) break;
    const whole = Math.floor(rest / size);
    if (whole > 0) parts.push(`${whole} ${unit}`);
    else if (parts.length) break;
    rest -= whole * size;
  }
  return (ms < 0 ? "-" : "") + (parts.join(" ") || "0 ms");
}

/** When retention may delete something: "in 3 h". It runs now and then, so what is past its time may go at any moment. */
export const whenDeleted = (ms) => (ms === 0 ? "at any time" : `in ${duration(ms)}`);

/** Milliseconds since 1970, with milliseconds and the zone. `utc`: of `useSettings`. */
export function time(ms, utc) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  const date = new Date(Number(ms));
  if (utc) return date.toISOString().replace("T", " ").replace("Z", " UTC");
  const two = (number, size = 2) => String(number).padStart(size, "0");
  const zone = -date.getTimezoneOffset();
  const sign = zone < 0 ? "-" : "+";
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const clock = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${two(date.getMilliseconds(), 3)}`;
  return `${day} ${clock} ${sign}${two(Math.floor(Math.abs(zone) / 60))}:${two(Math.abs(zone) % 60)}`;
}

/** "3 min ago". */
export function ago(ms, now = Date.now()) {
  return ms === null || ms === undefined ? "–" : ms <= now ? `${duration(now - ms)} ago` : `in ${duration(ms - now)}`;
}

/** A topic's config with its unit: 604800000 of retention.ms is "604800000 (7 d)". */
export function configValue(key, value) {
  if (value === null || value === undefined) return "–";
  if (value === "") return "(empty)";
  if (!/^\d+$/.test(value) || Number(value) < 1_000) return value;
  if (/^9223372036854775807$|^2147483647$/.test(value)) return `${value} (no limit)`;
  if (key.endsWith(".ms")) return `${value} (${duration(Number(value))})`;
  return key.endsWith("bytes") ? `${value} (${bytes(Number(value))})` : value;
}
