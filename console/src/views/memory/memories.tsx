// Memories, strongest first. Only the rows in view exist in the document.

import { type Schemas, userPath } from "../../core/api";
import { usePages } from "../../core/hooks";
import { go, Link, useAddress } from "../../core/router";
import { useWords } from "../../i18n";
import { Badge, Meter, Time } from "../../ui/basics";
import { VirtualList } from "../../ui/virtual";
import { ListEnd } from "../start";
import type { Moment, Owner } from ".";

type Row = Schemas["MemoryView"];

const TYPES = ["semantic", "summary", "episodic"] as const;
const PAGE = 200;

export function MemoryList({ owner: { app, user }, moment, round }: { owner: Owner; moment: Moment; round: number }) {
  const { t } = useWords();
  const address = useAddress();
  const type = address.get("kind");
  const memories = usePages(
    (api, cursor, signal) =>
      api.get<Schemas["MemoryPageView"]>(
        userPath(app, user, "memories"),
        { limit: PAGE, cursor, memory_type: type, until: moment.asOf },
        signal,
      ),
    (page) => page.memories,
    ["memories", app, user, moment.asOf, type],
    round,
  );
  return (
    <>
      <div class="filters list-filter">
        <label>
          <span class="hidden-text">{t.memory.kind}</span>
          <select value={type ?? ""} onChange={(event) => go(address.with({ kind: event.currentTarget.value }))}>
            <option value="">{t.memory.allKinds}</option>
            {TYPES.map((each) => (
              <option key={each} value={each}>
                {t.memory.kinds[each]}
              </option>
            ))}
          </select>
        </label>
        <span class="note" role="status">
          {t.memory.memoryCount(memories.rows.length, memories.hasMore)}
        </span>
      </div>
      {memories.rows.length > 0 && (
        <VirtualList
          id="memories"
          class="panel memory-list"
          label={t.memory.tabs.memories}
          rows={memories.rows}
          keyOf={(row) => row.id}
          estimate={64}
          nearEdge={memories.more}
          render={(row) => <MemoryRow memory={row} />}
        />
      )}
      {(memories.rows.length === 0 || memories.error) && (
        <ListEnd pages={memories} isFiltered={false} empty={t.memory.noMemories} note={t.memory.noMemoriesNote} />
      )}
    </>
  );
}

function MemoryRow({ memory }: { memory: Row }) {
  const { t } = useWords();
  const address = useAddress();
  return (
    <div class="memory-row">
      <Link
        class="memory-text"
        dir="auto"
        to={address.with({ id: memory.id, key: null, type: null })}
        aria-current={address.get("id") === memory.id ? "true" : undefined}
      >
        {memory.content}
      </Link>
      <span class="memory-facts note">
        <Badge>{t.memory.kinds[memory.memory_type]}</Badge>
        {memory.pinned && <Badge tone="accent">{t.memory.pinned}</Badge>}
        {memory.occurred_at && <Time value={memory.occurred_at} />}
        <span>{t.memory.used(memory.access_count)}</span>
      </span>
      <Meter label={t.memory.strength} value={memory.retention_score} tone={memory.retention_score < 0.2 ? "warn" : "accent"} />
    </div>
  );
}
