"""What a trained model says, by the command line and over HTTP."""

import json
import subprocess
import sys
import urllib.request

# llama.cpp's `llama-perplexity -c 256` on this file and text (source of llama-cpp-python 0.3.36, AVX-512), whose
# standard error is 1.92.
PERPLEXITY = 21.3879
# Both round what is multiplied with the weights to 8 bits, each in its own way; keys and values in F32 instead of F16
# make a difference of 0.2 %.
TOLERANCE = 0.01
CITY = {
    "type": "object", "required": ["name", "country", "rivers"], "additionalProperties": False,
    "properties": {"name": {"type": "string", "maxLength": 40}, "country": {"enum": ["France", "Spain", "Italy"]},
                   "rivers": {"type": "array", "items": {"type": "string", "maxLength": 40}, "maxItems": 3}},
}
# With the system message of its template it answers in something like French, as in llama.cpp.
SYSTEM = "Answer the question."
CAPITAL = "What is the capital of France?"
# The template does not show how a call is written.
FORMAT = ["--chat-format", "hermes"]
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather in a city",
    "parameters": {"type": "object", "required": ["city"], "additionalProperties": False,
                   "properties": {"city": {"type": "string", "maxLength": 40}}}}}


def want(true: bool, what: str) -> None:
    if not true:
        raise SystemExit(f"smollm2: {what}")


def perplexity(program: str, model: str, text: str) -> None:
    for more in [], ["--nodes", "2", "--threads", "2"]:
        out = subprocess.run([program, "perplexity", model, "-f", text, "-c", "256", "-o", "json", *more],
                             check=True, capture_output=True, text=True).stdout
        got = json.loads(out)["perplexity"]
        print(f"smollm2: perplexity {got:.4f} {' '.join(more)}, llama.cpp's {PERPLEXITY}")
        want(abs(got / PERPLEXITY - 1) < TOLERANCE, f"perplexity {got} is not {PERPLEXITY}")


def run(program: str, model: str) -> None:
    command = [program, "run", model, "-q", "--chat", "--system", SYSTEM, "--temp", "0", "-n", "40", "-p", CAPITAL]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    print(f"smollm2: run says {out.strip()!r}")
    want("Paris" in out, "run does not know the capital of France")


class Server:
    def __init__(self, program: str, model: str):
        command = [program, "serve", model, "--port", "0", *FORMAT]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        line = next(line for line in self.process.stderr if line.startswith("serving "))
        self.address = "http://" + line.split("http://")[1].split("/")[0]

    def chat(self, question: str, **more) -> dict:
        body = {"messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}],
                "temperature": 0, "max_tokens": 120, **more}
        request = urllib.request.Request(f"{self.address}/v1/chat/completions", json.dumps(body).encode(),
                                         {"content-type": "application/json"})
        choice = json.load(urllib.request.urlopen(request))["choices"][0]
        print(f"smollm2: {question!r}: {choice}")
        return choice


def serve(program: str, model: str) -> None:
    server = Server(program, model)
    try:
        said = server.chat(CAPITAL)["message"]["content"]
        want("Paris" in said, "the server does not know the capital of France")
        form = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}}
        city = json.loads(server.chat("Tell me about Paris.", response_format=form)["message"]["content"])
        want(set(city) == {"name", "country", "rivers"}, "an answer in a form has other fields")
        want(city["country"] == "France", "Paris is not in France")
        choice = server.chat("How is the weather in Paris?", tools=[WEATHER], tool_choice="required",
                             parallel_tool_calls=False)
        call = choice["message"]["tool_calls"][0]["function"]
        want(choice["finish_reason"] == "tool_calls" and call["name"] == "get_weather", "the tool is not called")
        want("Paris" in json.loads(call["arguments"])["city"], "the tool is called for another city")
    finally:
        server.process.terminate()
        server.process.wait()


def main() -> None:
    program, model, text = sys.argv[1:]
    perplexity(program, model, text)
    run(program, model)
    serve(program, model)


if __name__ == "__main__":
    main()
