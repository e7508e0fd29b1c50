// The machine: its memory nodes with their cores, and what the model's threads do there.

import { Parts } from "./parts";
import type { Group, MachineNode, Status } from "./types";
import { percent, rate, size } from "./words";

/** More cores than this are a number, not squares. */
const DRAWN = 256;

export function Nodes({ status }: { status: Status }) {
  const nodes = status.machine?.nodes ?? [];
  const several = status.replicas.length > 1;
  const groups = status.replicas.flatMap((replica, at) => replica.groups.map((group) => ({ group, replica: at })));
  const of = (node: MachineNode) =>
    groups.filter(({ group }) => group.node === node.node || (group.node === null && nodes.length === 1));
  return (
    <ul class="nodes">
      {nodes.map((node) => (
        <li key={node.node} class="node">
          <h3>Node {node.node}</h3>
          <Cores node={node} threads={of(node).reduce((sum, { group }) => sum + group.threads, 0)} />
          {node.available_bytes !== null && (
            <Parts
              label={`Memory of node ${node.node}`}
              parts={[
                {
                  label: "Memory in use",
                  share: 1 - node.available_bytes / node.memory_bytes,
                  kind: "second",
                  text: `${size(node.memory_bytes - node.available_bytes)} of ${size(node.memory_bytes)}`,
                },
              ]}
            />
          )}
          {of(node).map(({ group, replica }, at) => (
            <GroupView key={at} group={group} title={several ? `Replica ${replica}` : null} />
          ))}
        </li>
      ))}
    </ul>
  );
}

function Cores({ node, threads }: { node: MachineNode; threads: number }) {
  const text = `${node.cores} core${node.cores === 1 ? "" : "s"}, ${threads} thread${threads === 1 ? "" : "s"} of the model`;
  return (
    <div class="cores">
      {node.cores <= DRAWN && (
        <div class="squares" aria-hidden="true">
          {Array.from({ length: node.cores }, (_, at) => (
            <span key={at} class={at < threads ? "used" : ""} />
          ))}
        </div>
      )}
      <p class="quiet">{text}</p>
    </div>
  );
}

function GroupView({ group, title }: { group: Group; title: string | null }) {
  const { rates, limit_bytes_per_second: limit } = group;
  const exceeds = rates !== null && limit !== null && rates.read_bytes_per_second > limit;
  return (
    <div class="group">
      {title && <h4>{title}</h4>}
      {rates ? (
        <>
          <Parts
            label="Memory read"
            parts={[
              {
                label: "Read",
                share: exceeds ? 1 : (rates.of_limit ?? 0),
                kind: "first",
                text: limit ? `${rate(rates.read_bytes_per_second)} of ${rate(limit)}` : rate(rates.read_bytes_per_second),
              },
            ]}
          />
          {exceeds && (
            <p class="quiet">
              More than was measured of the memory: caches serve a part, or other programs ran meanwhile.
            </p>
          )}
          <Parts
            label="Time of the threads in steps"
            parts={[
              { label: "Working", share: rates.working, kind: "first", text: percent(rates.working) },
              { label: "Waiting for the node", share: rates.waiting_node, kind: "second", text: percent(rates.waiting_node) },
              { label: "for the machine", share: rates.waiting_machine, kind: "third", text: percent(rates.waiting_machine) },
            ]}
          />
          <p class="quiet">
            {rates.remote_share !== null && `${percent(rates.remote_share)} of the bytes from other nodes`}
            {rates.stolen_share !== null && ` · ${percent(rates.stolen_share)} of the tiles taken over`}
          </p>
        </>
      ) : (
        <p class="quiet">Nothing is computed.{limit !== null && ` Its memory delivers ${rate(limit)}.`}</p>
      )}
    </div>
  );
}
