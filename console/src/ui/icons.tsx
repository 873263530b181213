// The icons of the navigation, drawn with one pen.

const PATHS: Record<string, string> = {
  start: "M3 11 12 3l9 8M5 9.5V20h14V9.5M10 20v-6h4v6",
  memory: "M8 4a4 4 0 0 0-4 4 4 4 0 0 0 0 8 4 4 0 0 0 8 2V6a3 3 0 0 0-4-2M16 4a4 4 0 0 1 4 4 4 4 0 0 1 0 8 4 4 0 0 1-8 2",
  conversation: "M4 5h16v11H9l-5 4z",
  search: "M10.5 4a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13M15.5 15.5 21 21",
  consolidation: "M4 6h10M4 12h16M4 18h7M17 3l3 3-3 3M14 15l-3 3 3 3",
  operations: "M3 12h4l3-8 4 16 3-8h4",
  knowledge: "M5 4h6a2 2 0 0 1 2 2v14a2 2 0 0 0-2-2H5zM19 4h-4a2 2 0 0 0-2 2M19 4v14h-4a2 2 0 0 0-2 2",
  upkeep: "M12 3a9 9 0 1 0 9 9M12 7v5l3 3M17 3h4v4",
  tools: "M14 6a4 4 0 0 1 5 5l-9 9-4-4 9-9a4 4 0 0 1-1-1M6 16l-2 4 4-2",
};

export function Icon({ name }: { name: string }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" width="18" height="18" aria-hidden="true">
      <path d={PATHS[name] ?? PATHS.operations ?? ""} />
    </svg>
  );
}
