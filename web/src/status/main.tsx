import { render } from "preact";
import "../ui/base.css";
import "./status.css";
import { Dashboard } from "./Dashboard";

const root = document.getElementById("app");
if (root) render(<Dashboard />, root);
