// The page at /status.

import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Fault, json, keyWanted } from "../api/client";
import { KeyDialog } from "../ui/KeyDialog";
import { ThemeSwitch } from "../ui/ThemeSwitch";
import { Chat, Warning } from "../ui/icons";
import { Models, wanted } from "./Models";
import { Nodes } from "./Nodes";
import { Requests } from "./Requests";
import { Parts, Section, Tile } from "./parts";
import type { Experts, Replica, Status } from "./types";
import { count, percent, perSecond, span, time } from "./words";

const EVERY = 1000;
const KEPT = 60;

const status = signal<Status | null>(null);
const trouble = signal("");
const history = signal<{ generated: number | null; prompt: number | null }[]>([]);

async function look(): Promise<void> {
  if (document.hidden || keyWanted.value) return;
  try {
    const model = wanted();
    const now = await json<Status>(model ? `/status.json?model=${encodeURIComponent(model)}` : "/status.json");
    if (status.value && status.value.model !== now.model) history.value = [];
    status.value = now;
    trouble.value = "";
    const point = { generated: now.rates?.generated_per_second ?? null, prompt: now.rates?.prompt_per_second ?? null };
    history.value = [...history.value, point].slice(-KEPT);
  } catch (error) {
    trouble.value = error instanceof Fault && error.status === 401 ? "" : error instanceof Error ? error.message : String(error);
  }
}

export function Dashboard() {
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let ended = false;
    const loop = async () => {
      await look();
      if (!ended) timer = setTimeout(() => void loop(), EVERY);
    };
    void loop();
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }, []);
  const now = status.value;
  return (
    <div class="page">
      <header class="head">
        <a class="brand" href="/">
          <img src="/icon.svg" alt="" width="24" height="24" />
          <span>Arclight</span>
        </a>
        <h1>Status</h1>
        <nav aria-label="Pages">
          <a class="quiet-link" href="/">
            <Chat /> Chat
          </a>
        </nav>
        <ThemeSwitch />
      </header>
      <main>
        {trouble.value && (
          <p class="banner" role="alert">
            <Warning /> {trouble.value}
            {now && " What follows is from before."}
          </p>
        )}
        {now ? <Live status={now} /> : !trouble.value && <p class="quiet">Asking the server.</p>}
      </main>
      <footer class="quiet">
        The page asks only this server. It is made with <a href="/licenses.md">software of others</a>.
      </footer>
      <KeyDialog onKey={() => void look()} />
    </div>
  );
}

function Live({ status }: { status: Status }) {
  const { replicas, machine } = status;
  const experts = replicas.find((replica) => replica.experts)?.experts;
  return (
    <>
      <p class="about">
        <b>{status.model}</b> · {status.phase} · up for {span(status.uptime_seconds)} · Arclight {status.version}
        {machine && ` · ${machine.cpu ?? "unknown CPU"}, ${machine.cores} core${machine.cores === 1 ? "" : "s"}`}
      </p>
      {status.models && (
        <Section id="models" title="Models">
          <Models models={status.models} shown={status.model} />
        </Section>
      )}
      <Section id="why" title="Why is it slow?">
        <ul class="why">
          {status.why.map((reason) => (
            <li key={reason.text.replace(/[\d.]+/g, "#")} class={reason.costs ? "costs" : ""}>
              <p>{reason.text}</p>
              {reason.mend && (
                <ul>
                  {reason.mend.map((text) => (
                    <li key={text}>{text}</li>
                  ))}
                </ul>
              )}
            </li>
          ))}
        </ul>
      </Section>
      {replicas.length > 0 && <Now status={status} />}
      {machine && (
        <Section id="machine" title="Machine">
          <Nodes status={status} />
        </Section>
      )}
      {replicas.length > 0 && (
        <Section id="cache" title="Cache">
          <Cache replicas={replicas} />
        </Section>
      )}
      {experts && (
        <Section id="experts" title="Experts">
          <ExpertsView experts={experts} />
        </Section>
      )}
      <Section id="requests" title="Last answers">
        <Requests requests={status.requests} />
      </Section>
      {status.unknown.length > 0 && (
        <Section id="unknown" title="Not known">
          <ul class="unknown">
            {status.unknown.map(({ what, why }, at) => (
              <li key={at}>
                <code>{what}</code>: {why}.
              </li>
            ))}
          </ul>
        </Section>
      )}
    </>
  );
}

const sum = (replicas: Replica[], of: (replica: Replica) => number): number => replicas.reduce((all, one) => all + of(one), 0);

function Now({ status }: { status: Status }) {
  const { rates, replicas } = status;
  const slots = sum(replicas, (one) => one.slots);
  const waiting = sum(replicas, (one) => one.waiting);
  return (
    <Section id="now" title={rates ? `The last ${span(rates.seconds)}` : "Now"}>
      <dl class="tiles">
        <Tile
          label="Answers"
          value={rates ? perSecond(rates.generated_per_second) : "–"}
          unit="tokens/s"
          history={history.value.map((point) => point.generated)}
        />
        <Tile
          label="Prompts"
          value={rates ? perSecond(rates.prompt_per_second) : "–"}
          unit="tokens/s"
          history={history.value.map((point) => point.prompt)}
        />
        <Tile label="Running" value={String(sum(replicas, (one) => one.running))} unit={`of ${slots} slots`} />
        <Tile
          label="Waiting"
          value={String(waiting)}
          unit={waiting === 1 ? "answer" : "answers"}
          note={`${count(sum(replicas, (one) => one.outstanding_tokens))} tokens to compute at most`}
        />
        <Tile
          label="Step"
          value={time(rates?.step_ms ?? null)}
          note={rates?.answers_per_step != null ? `${rates.answers_per_step.toFixed(1)} tokens of answers in each` : "no steps"}
        />
        <Tile label="Between steps" value={time(rates?.between_ms ?? null)} note="sampling, and work of a single thread" />
        <Tile label="Computing" value={rates ? percent(rates.computing) : "–"} unit="of the time" />
        {rates?.accepted_share != null && <Tile label="Guesses" value={percent(rates.accepted_share)} unit="came true" />}
      </dl>
    </Section>
  );
}

function Cache({ replicas }: { replicas: Replica[] }) {
  const [total, used, cached] = [
    sum(replicas, (one) => one.pages.total),
    sum(replicas, (one) => one.pages.used),
    sum(replicas, (one) => one.pages.cached),
  ];
  const prompt = sum(replicas, (one) => one.totals.prompt_tokens);
  const found = sum(replicas, (one) => one.totals.cached_tokens);
  const restored = sum(replicas, (one) => one.totals.restored_tokens);
  const preempted = sum(replicas, (one) => one.totals.preemptions);
  return (
    <>
      <Parts
        label={`${count(total)} pages of keys and values`}
        parts={[
          { label: "In use", share: used / Math.max(total, 1), kind: "first", text: count(used) },
          { label: "kept for later", share: cached / Math.max(total, 1), kind: "second", text: count(cached) },
          { label: "free", share: (total - used - cached) / Math.max(total, 1), kind: "rest", text: count(total - used - cached) },
        ]}
      />
      <p class="quiet">
        {count(total)} pages of 32 tokens.{" "}
        {prompt > 0
          ? `Since the start ${percent(found / prompt)} of ${count(prompt)} prompt tokens were found in the cache${restored > 0 ? `, ${count(restored)} of them on disk` : ""}.`
          : "There have been no prompts."}
        {preempted > 0 && ` ${count(preempted)} answers had to give up their pages for others.`}
      </p>
    </>
  );
}

function ExpertsView({ experts }: { experts: Experts }) {
  const { by_rank: shares, layers, busiest, busiest_of_all, idle_share } = experts;
  const top = Math.max(...shares);
  const even = 1 / shares.length;
  const width = 100 / shares.length;
  return (
    <>
      <svg
        class="ranks"
        viewBox="0 0 100 30"
        preserveAspectRatio="none"
        role="img"
        aria-label={`Shares of ${shares.length} experts, from the busiest, beside an even share`}
      >
        {shares.map((share, at) => (
          <rect key={at} x={at * width + width * 0.1} width={width * 0.8} y={30 - (share / top) * 29} height={(share / top) * 29} />
        ))}
        <line x1="0" x2="100" y1={30 - (even / top) * 29} y2={30 - (even / top) * 29} vector-effect="non-scaling-stroke" />
      </svg>
      <p class="quiet">
        {shares.length} experts in {layers} layers, from the busiest; the line is an even share. The busiest of a layer had{" "}
        {busiest.toFixed(1)} times its even share of tokens, in one layer {busiest_of_all.toFixed(1)} times;{" "}
        {percent(idle_share)} had none.
      </p>
    </>
  );
}
