"""The services of pybench: sessions that run cells, and scores."""

import asyncio
import base64
import json
from urllib.parse import quote

import httpx

SECONDS = 900.0
"""A check may take minutes."""
BUSY = (429, 503)
TRIES = 120
MAX_SHOWN = 8000
"""Characters of a cell's text that the model sees."""

ERROR = "There are some errors in the code. All variables in this cell should be redefined. Please Debug:"
STOPPED = {
    "interrupted": "[The cell ran longer than allowed and was interrupted. Variables are kept.]",
    "restarted": "[The cell ran longer than allowed and could not be interrupted. The interpreter was restarted: all variables are lost.]",
    "died": "[The interpreter died, perhaps for lack of memory, and was restarted: all variables are lost.]",
}


class Refused(RuntimeError):
    """A service said no; `status` is its HTTP status."""

    def __init__(self, what, response):
        super().__init__(f"{what}: {response.status_code} {response.text[:500]}")
        self.status = response.status_code


async def ask(url, token, method, path, **more):
    """One request. Who is told to come back later does."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=SECONDS) as client:
        for _ in range(TRIES):
            response = await client.request(method, path, **more)
            if response.status_code not in BUSY:
                break
            await asyncio.sleep(2)
    if response.is_error:
        raise Refused(f"{method} {url}{path}", response)
    return response


async def begin(url, token, seed, files):
    """A session with these files (path → bytes): its name."""
    created = await ask(url, token, "POST", "/v1/sessions", json={"seed": seed})
    session = created.json()["id"]
    for path, data in files.items():
        await ask(url, token, "PUT", f"/v1/sessions/{session}/files/{quote(path)}", content=data)
    return session


async def run(url, token, session, code):
    """Run a cell: what it showed, as text. What its charts were noted to show is kept in the workspace."""
    response = await ask(url, token, "POST", f"/v1/sessions/{session}/execute", json={"code": code})
    observation = response.json()
    charts = [{"path": o["path"], "figure": o["figure"]} for o in observation["outputs"] if o["output"] == "chart"]
    if charts:
        path = f"/v1/sessions/{session}/files/.charts/{observation['count']:06}.json"
        await ask(url, token, "PUT", path, content=json.dumps(charts).encode())
    return shortened(shown(observation))


def shown(observation):
    """What a cell showed, piece by piece on lines of their own."""
    pieces = []
    for output in observation["outputs"]:
        if output["output"] == "stream":
            pieces.append(output["text"])
        elif output["output"] in ("result", "display"):
            pieces.append(rich(output["data"]))
    if error := observation.get("error"):
        pieces.append(f"{ERROR}\nError: {error['ename']}\n{error['evalue']}\n")
    if stopped := observation.get("stopped"):
        pieces.append(STOPPED[stopped])
    text = ""
    for piece in pieces:
        text += ("\n" if text and piece and not text.endswith("\n") else "") + piece
    return text


def rich(data):
    """One MIME bundle: a picture by its kind, else its plain text, else its types."""
    for mime in data:
        if mime.startswith("image/"):
            return f"[image: {mime.removeprefix('image/').removesuffix('+xml')}]"
    return data.get("text/plain", f"[{', '.join(data)}]")


def shortened(text):
    """Head and tail of a flood."""
    if len(text) <= MAX_SHOWN:
        return text
    half = MAX_SHOWN // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"


async def collect(url, token, session):
    """What lies in output/, and what charts were noted to show."""
    files = []
    for path in await names(url, token, session, "output", 16):
        data = await download(url, token, session, path)
        files.append({"path": path, "base64": base64.b64encode(data).decode()})
    claims = []
    for path in await names(url, token, session, ".charts", 1):
        # The cells could write there too: what is no claim is left out.
        try:
            claims += [c for c in json.loads(await download(url, token, session, path)) if set(c) == {"path", "figure"}]
        except (ValueError, TypeError, RecursionError):
            continue
    return files, claims


async def names(url, token, session, folder, depth):
    """Regular files below a folder of the workspace, sorted."""
    try:
        response = await ask(url, token, "GET", f"/v1/sessions/{session}/files", params={"path": folder, "depth": depth})
    except Refused as refused:
        if refused.status == 404:
            return []
        raise
    return sorted(entry["path"] for entry in response.json() if entry["kind"] == "file")


async def download(url, token, session, path):
    response = await ask(url, token, "GET", f"/v1/sessions/{session}/files/{quote(path)}")
    return response.content


async def end(url, token, session):
    """The session is not needed any more; one that is gone already is none."""
    try:
        await ask(url, token, "DELETE", f"/v1/sessions/{session}")
    except (Refused, httpx.HTTPError):
        pass


async def score(url, token, body):
    """The verdict on a workspace. One that is too large to be sent is the model's own doing."""
    try:
        return (await ask(url, token, "POST", "/v1/rewards", json=body)).json()
    except Refused as refused:
        if refused.status != 413:
            raise
        return {"reward": 0.0, "share": 0.0, "findings": [{"outcome": "fail", "detail": str(refused)}]}
