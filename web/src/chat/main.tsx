import { render } from "preact";
import "../ui/base.css";
import "./chat.css";
import "../text/text.css";
import { App } from "./App";
import { load } from "./store";

const root = document.getElementById("app");
if (root) void load().finally(() => render(<App />, root));
