"""`python -m benchmarks.estimates [FILE ...]`: the error of input token estimates, by text and tokenizer.

It needs the extra `exact-tokens`. Every text is cut into pieces: an estimator learns from every second one, and
the others are estimated. Your own texts, given as files, replace the few short ones in here.
"""

import json
import random
from pathlib import Path

from benchmarks.arguments import parser_of
from gateway.core.call import TokenEstimate, TokenUsage
from gateway.usage import exact_tokens
from gateway.usage.estimator import Estimator, Exact
from gateway.wire.openai.chat import CHAT
from gateway.wire.openai.token_weight import weigh
from gateway.wire.request_body import read_fields

MODELS = {"o200k": "gpt-4o", "cl100k": "gpt-4", "qwen3": "qwen3-8b", "llama3": "llama-3-8b"}
ROUNDS = 10

SAMPLES = {
    "english": (
        "The harbour master keeps a ledger of every vessel that enters the bay. Each morning she walks "
        "along the quay, compares the names on the bows with the list from the night before, and writes "
        "down what has changed. Most days nothing has. In autumn, when the herring come close to the "
        "shore, there may be forty boats where a week earlier there were six, and the ledger fills "
        "faster than the fish crates do. She does not mind. A good record, she says, is worth more than "
        "a good memory, because nobody argues with it."
    ),
    "korean": (
        "항구 관리인은 만에 들어오는 모든 배를 장부에 적어 둔다. 매일 아침 부두를 따라 걸으며 뱃머리에 "
        "적힌 이름을 전날 밤의 목록과 비교하고 달라진 것을 기록한다. 대부분의 날에는 아무것도 바뀌지 "
        "않는다. 청어가 해안 가까이 몰려오는 가을이면 일주일 전에 여섯 척이던 자리에 마흔 척이 "
        "모여들고, 장부는 생선 상자보다 빨리 채워진다. 그래도 그는 귀찮아하지 않는다. 좋은 기록은 좋은 "
        "기억보다 낫다고, 아무도 기록과는 다투지 않기 때문이라고 말한다. 서버 응답이 느릴 때는 먼저 "
        "로그를 확인하고, 요청 수와 대기 시간을 함께 살펴보세요."
    ),
    "chinese": (
        "港口管理员把每一艘驶入海湾的船都记在账本上。每天早晨，她沿着码头走一圈，把船头上的名字和前一晚"
        "的名单进行比较，然后写下发生的变化。大多数日子里什么都没有变。到了秋天，鲱鱼游近海岸，一周前只"
        "有六艘船的地方可能会停着四十艘，账本填满的速度比鱼箱还快。她并不介意。她说，好的记录比好的记忆"
        "更有价值，因为没有人会跟它争论。如果服务器响应缓慢，请先检查日志，再查看请求数量和等待时间，最"
        "后确认缓存是否已经启用。"
    ),
    "japanese": (
        "港の管理人は、湾に入ってくるすべての船を帳簿につけている。毎朝、岸壁に沿って歩き、船首に書かれ"
        "た名前を前の晩の一覧と見比べて、変わったことを書き留める。たいていの日は何も変わらない。ニシン"
        "が岸に近づく秋になると、一週間前には六隻しかいなかった場所に四十隻が集まり、帳簿は魚の箱よりも"
        "早く埋まっていく。それでも彼女は気にしない。良い記録は良い記憶よりも価値がある、誰も記録とは言"
        "い争わないからだ、と彼女は言う。サーバーの応答が遅いときは、まずログを確認してください。"
    ),
    "code": (
        "class Ledger:\n"
        '    """Every vessel that has entered the bay, by name."""\n\n'
        "    def __init__(self, path: Path) -> None:\n"
        "        self._path = path\n"
        "        self._seen: dict[str, Visit] = {}\n\n"
        "    def arrive(self, name: str, now: float) -> Visit:\n"
        "        visit = self._seen.get(name)\n"
        "        if visit is None or visit.left_at is not None:\n"
        "            visit = self._seen[name] = Visit(name, arrived_at=now)\n"
        '            logger.info("arrived", extra={"vessel": name, "count": len(self._seen)})\n'
        "        return visit\n\n"
        "    def longest(self, limit: int = 10) -> list[Visit]:\n"
        "        ended = [one for one in self._seen.values() if one.left_at is not None]\n"
        "        return sorted(ended, key=lambda one: one.left_at - one.arrived_at)[-limit:]\n"
    ),
    "json": json.dumps(
        [
            {
                "id": 1042 + 37 * at,
                "vessel": name,
                "arrived_at": f"2026-11-{at + 10}T06:{at}5:00Z",
                "crew": 3 + at,
                "crates": [{"kind": "herring", "kg": 18.5 + at}, {"kind": "cod", "kg": 7.25}],
                "paid": at % 2 == 0,
                "note": None,
            }
            for at, name in enumerate(["Northern Light", "Marigold", "Second Chance", "Tern"])
        ]
    ),
}


def body(text: str, model: str = "m", *, escaped: bool = False) -> bytes:
    """A chat call with one message of this text."""
    call = {"model": model, "stream": True, "messages": [{"role": "user", "content": text}]}
    return json.dumps(call, ensure_ascii=escaped).encode()


def halves(text: str, size: int) -> tuple[list[str], list[str]]:
    """The pieces of a text, alternately for learning and for judging."""
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    return pieces[::2], pieces[1::2]


def off(estimator: Estimator, text: str, model: str, actual: int) -> tuple[float, TokenEstimate]:
    """The share by which the estimate is too high (or, negative, too low)."""
    whole = body(text, model)
    fields = read_fields(whole)
    weight, caps = weigh(fields, whole), CHAT.caps(fields)
    estimate = estimator.estimate(weight, caps, model, "key")
    return estimate.input / actual - 1, estimate


def errors(estimator: Estimator, judged: list[str], model: str, exact: Exact) -> str:
    """The mean error, and the bounds of 90 % of the pieces."""
    found = [off(estimator, text, model, exact(body(text), model) or 1)[0] for text in judged]
    found.sort()
    low, high = found[len(found) // 20], found[-1 - len(found) // 20]
    return f"{sum(found) / len(found):+.0%} ({low:+.0%} to {high:+.0%})"


def main() -> None:
    """Print the table, before and after learning."""
    parser = parser_of(__doc__)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--piece", type=int, default=100, metavar="N", help="characters; default 100")
    given = parser.parse_args()
    texts = {file.name: file.read_text(encoding="utf-8") for file in given.files} or SAMPLES
    halved = {name: halves(text, given.piece) for name, text in texts.items()}
    if not all(judged for _, judged in halved.values()):
        parser.error("every text must have two pieces at least")
    exact = exact_tokens.load(MODELS.values())
    if exact is None:
        raise SystemExit("needs the extra: pip install 'sluice-gateway[exact-tokens]'")
    print("| text | tokenizer | at first | after learning |\n| --- | --- | --- | --- |")
    for tokenizer, model in MODELS.items():
        fresh, taught = Estimator(), Estimator()
        lessons = [piece for learned, _ in halved.values() for piece in learned] * ROUNDS
        random.Random(1).shuffle(lessons)
        for text in lessons:
            actual = exact(body(text), model) or 1
            taught.learn(off(taught, text, model, actual)[1], model, "key", TokenUsage(actual, 0))
        for name, (_, judged) in halved.items():
            columns = [errors(estimator, judged, model, exact) for estimator in (fresh, taught)]
            print(f"| {name} | {tokenizer} | {' | '.join(columns)} |")


if __name__ == "__main__":
    main()
