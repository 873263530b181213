// Memories that became too weak: until when each can be restored.

import { type Api, type Schemas, userPath } from "../../core/api";
import { useAction, usePages } from "../../core/hooks";
import { useMay } from "../../core/session";
import { useWords } from "../../i18n";
import { Badge, Button, ErrorBox, Panel, Time } from "../../ui/basics";
import { ListEnd } from "../start";
import type { Owner } from ".";

interface Props {
  owner: Owner;
  round: number;
  changed: () => void;
}

export function ArchiveList({ owner, round, changed }: Props) {
  const { t } = useWords();
  const archived = usePages(
    (api, cursor, signal) => api.get<Schemas["ArchivePageView"]>(userPath(owner.app, owner.user, "archive"), { limit: 100, cursor }, signal),
    (page) => page.memories,
    ["archive", owner],
    round,
  );
  return (
    <Panel title={t.memory.tabs.archive} flush>
      {archived.rows.length > 0 && (
        <ul class="archived">
          {archived.rows.map((each) => (
            <ArchivedRow key={each.id} owner={owner} memory={each} changed={changed} />
          ))}
        </ul>
      )}
      <ListEnd pages={archived} isFiltered={false} empty={t.memory.noArchive} note={t.memory.noArchiveNote} />
    </Panel>
  );
}

function ArchivedRow({ owner, memory, changed }: { owner: Owner; memory: Schemas["ArchivedMemoryView"]; changed: () => void }) {
  const { t } = useWords();
  const may = useMay();
  const restore = useAction(
    (api: Api) => api.post(userPath(owner.app, owner.user, "archive", "restore"), { memory_ids: [memory.id] }),
    changed,
  );
  return (
    <li>
      <p dir="auto">{memory.content}</p>
      <p class="note">
        <Badge>{memory.archive_reason}</Badge> {t.memory.archivedAt} <Time value={memory.archived_at} />
        {memory.purged_after && (
          <>
            {" · "}
            {t.memory.restorableUntil} <Time value={memory.purged_after} />
          </>
        )}
      </p>
      {may("admin") && (
        <Button small disabled={restore.busy} onClick={restore.run}>
          {t.memory.restore}
        </Button>
      )}
      {restore.error && <ErrorBox error={restore.error} />}
    </li>
  );
}
