// What GET /status.json gives; crates/server/src/status/shape.rs writes it.

export interface GroupRates {
  read_bytes_per_second: number;
  of_limit: number | null;
  remote_share: number | null;
  working: number;
  waiting_node: number;
  waiting_machine: number;
  stolen_share: number | null;
}

export interface Group {
  node: number | null;
  threads: number;
  limit_bytes_per_second: number | null;
  rates: GroupRates | null;
}

export interface Experts {
  layers: number;
  busiest: number;
  busiest_of_all: number;
  idle_share: number;
  by_rank: number[];
}

export interface Replica {
  mode: string;
  threads: number;
  slots: number;
  running: number;
  waiting: number;
  outstanding_tokens: number;
  pages: { total: number; used: number; cached: number; free: number };
  groups: Group[];
  experts: Experts | null;
  failure: string | null;
  totals: {
    answers: number;
    prompt_tokens: number;
    cached_tokens: number;
    restored_tokens: number;
    generated_tokens: number;
    drafted_tokens: number;
    accepted_tokens: number;
    preemptions: number;
    steps: number;
    step_seconds: number;
    between_seconds: number;
  };
}

export interface Rates {
  seconds: number;
  generated_per_second: number;
  prompt_per_second: number;
  steps_per_second: number;
  step_ms: number | null;
  between_ms: number | null;
  answers_per_step: number | null;
  computing: number;
  cached_share: number | null;
  accepted_share: number | null;
  preemptions: number;
}

export interface MachineNode {
  node: number;
  cores: number;
  memory_bytes: number;
  available_bytes: number | null;
}

export interface Served {
  ended: number;
  end: "stop" | "length" | "tool_calls" | "abort" | "error";
  replica: number | null;
  queued_ms: number | null;
  first_ms: number | null;
  total_ms: number;
  prompt_tokens: number;
  cached_tokens: number;
  tokens: number;
  tokens_per_second: number | null;
}

export interface ModelView {
  name: string;
  state: "unloaded" | "loading" | "loaded" | "unloading" | "failed";
  error: string | null;
  pinned: boolean;
  running: number;
  waiting: number;
  bytes: number;
  idle_seconds: number | null;
}

export interface Status {
  phase: "loading" | "ready" | "unloaded" | "failed" | "stopping";
  version: string;
  model: string;
  /** Of a server with several. */
  models?: ModelView[];
  uptime_seconds: number;
  machine: { cpu: string | null; cores: number; nodes: MachineNode[]; cache_bytes: number } | null;
  replicas: Replica[];
  rates: Rates | null;
  requests: Served[];
  why: { text: string; mend?: string[]; costs: boolean }[];
  unknown: { what: string; why: string }[];
}
