"""The page's words in English and Korean."""

from collections.abc import Mapping
from typing import Final

from gateway.inspector.reasons import EXCLUDED, SENTENCES, CallReason, excluded_sentence

LANGUAGES: Final = ("en", "ko")

TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    "overview": ("Overview", "개요"),
    "upstreams": ("Upstreams", "업스트림"),
    "models": ("Models", "모델"),
    "keys": ("Keys", "키"),
    "batches": ("Batches", "배치"),
    "no_batches": ("No batches yet.", "아직 배치가 없습니다."),
    "lines": ("Lines done", "끝난 줄"),
    "failed_lines": ("Failed", "실패"),
    "calls": ("Calls", "호출"),
    "try": ("Try it", "써 보기"),
    "skip": ("Skip to the content", "본문으로 건너뛰기"),
    "screens": ("Screens", "화면"),
    "language": ("한국어", "English"),
    "live": ("live", "실시간"),
    "away": ("The gateway does not answer; trying again.", "게이트웨이가 응답하지 않습니다. 다시 연결하는 중입니다."),
    "snapshot": (
        "A snapshot: reload the page for newer figures, or allow JavaScript.",
        "지금 이 순간의 모습입니다. 새 수치를 보려면 새로고침하거나 JavaScript를 허용하세요.",
    ),
    "bodies_kept": (
        "The inspector keeps prompts and answers (inspector.bodies). Everybody who can open this page can read them.",
        "인스펙터가 프롬프트와 응답을 보관합니다(inspector.bodies). 이 페이지를 여는 사람은 누구나 읽을 수 있습니다.",
    ),
    "since_start": ("since the start", "시작한 뒤 전체"),
    "per_second": ("per second", "초당"),
    "today": ("today", "오늘"),
    "requests": ("Requests", "요청"),
    "outcome": ("Outcome", "결과"),
    "outcomes": ("Outcomes, by whose fault they are", "결과와 그 책임"),
    "fault": ("Whose fault", "누구 탓"),
    "fault_nobody": ("nobody's", "없음"),
    "fault_client": ("the caller's", "호출한 쪽"),
    "fault_gateway": ("the gateway's", "게이트웨이"),
    "fault_upstream": ("the upstream's", "업스트림"),
    "count": ("Count", "건수"),
    "first_token": ("Time to first token", "첫 토큰까지"),
    "half": ("half are faster than", "절반은 이보다 빠름"),
    "most": ("95 % are faster than", "95 %는 이보다 빠름"),
    "tokens": ("Tokens", "토큰"),
    "input": ("input", "입력"),
    "output": ("output", "출력"),
    "cost": ("Cost", "비용"),
    "saved": ("Saved by the cache", "캐시로 아낀 비용"),
    "no_usage": ("Usage is not recorded", "사용량을 기록하지 않음"),
    "state": ("State", "상태"),
    "state_up": ("up", "정상"),
    "state_down": ("down", "연결 안 됨"),
    "state_failing": ("failing", "계속 실패"),
    "state_unknown": ("not known yet", "아직 모름"),
    "name": ("Name", "이름"),
    "in_flight": ("In flight", "처리 중"),
    "limit_of": ("of at most", "최대"),
    "waiting": ("Waiting", "대기"),
    "oldest": ("Longest wait", "가장 오래 기다린 시간"),
    "breaker": ("Circuit breaker", "서킷 브레이커"),
    "breaker_closed": ("closed", "닫힘"),
    "breaker_half_open": ("half open", "반쯤 열림"),
    "breaker_open": ("open", "열림"),
    "last_error": ("Last error", "마지막 오류"),
    "none": ("none", "없음"),
    "kind": ("Kind", "종류"),
    "attempts": ("Attempts", "시도"),
    "route": ("Routing", "라우팅"),
    "route_priority": ("in this order", "적힌 순서대로"),
    "route_cheapest": ("the cheapest first", "싼 것부터"),
    "route_weighted": ("by weight", "비중대로"),
    "route_least_loaded": ("the least loaded first", "가장 한가한 것부터"),
    "route_complexity": ("by how hard the prompt is", "프롬프트 난이도에 따라"),
    "candidates": ("Candidates", "후보"),
    "fallbacks": ("Fallbacks", "대체 모델"),
    "sent_as": ("Sent as", "보내는 이름"),
    "price": ("USD per million tokens (in, out)", "백만 토큰당 USD (입력, 출력)"),
    "weight": ("Weight", "비중"),
    "window": ("Context window", "컨텍스트 창"),
    "decisions": ("Chosen", "선택된 횟수"),
    "spill": ("passed by after", "이만큼 기다리면 다음으로"),
    "limits": ("Limits", "한도"),
    "limit_rpm": ("requests a minute", "분당 요청"),
    "limit_tpm": ("tokens a minute", "분당 토큰"),
    "limit_concurrency": ("requests at once", "동시 요청"),
    "limit_usd_per_day": ("USD a day", "하루 USD"),
    "left": ("Left", "남은 양"),
    "refused": ("Refused", "거부"),
    "priority": ("Class", "우선순위"),
    "may_use": ("Models it may use", "쓸 수 있는 모델"),
    "no_keys": ("No key is asked for: the config has none.", "설정에 키가 없어서 키를 묻지 않습니다."),
    "more_keys": ("more keys are not shown.", "개의 키는 표시하지 않았습니다."),
    "under_way": ("Under way", "진행 중"),
    "recent": ("Finished", "끝난 호출"),
    "kept": ("kept", "보관 중"),
    "no_calls": ("No calls yet.", "아직 호출이 없습니다."),
    "inspector_off": ("The inspector is off (inspector.calls: 0).", "인스펙터가 꺼져 있습니다(inspector.calls: 0)."),
    "filter": ("Filter", "걸러 보기"),
    "find": ("Find a request by its id", "요청 id로 찾기"),
    "find_button": ("Find", "찾기"),
    "status": ("Status", "상태 코드"),
    "slow": ("Slower than", "이보다 느린"),
    "any": ("any", "전체"),
    "show": ("Show", "보기"),
    "older": ("Older calls", "이전 호출"),
    "at": ("Time (UTC)", "시각 (UTC)"),
    "model": ("Model", "모델"),
    "key": ("Key", "키"),
    "upstream": ("Upstream", "업스트림"),
    "took": ("Took", "걸린 시간"),
    "request": ("Request", "요청"),
    "call": ("Call", "호출"),
    "no_call": ("No call with this id is kept.", "이 id의 호출은 보관되어 있지 않습니다."),
    "why": ("Why", "이유"),
    "why_nothing": ("Nothing unusual.", "특별한 일은 없었습니다."),
    "others": (
        "more kept calls have this id; this is the newest.",
        "개의 호출이 같은 id입니다. 이것이 가장 최근입니다.",
    ),
    "waterfall": ("Where the time went", "시간이 쓰인 곳"),
    "step": ("Step", "단계"),
    "step_door": ("request arrives", "요청 도착"),
    "step_decide": ("gateway decides", "게이트웨이 판단"),
    "step_wait": ("waits", "대기"),
    "step_attempt": ("attempt", "시도"),
    "step_pause": ("pause", "재시도 전 쉼"),
    "step_first_token": ("to the first token", "첫 토큰까지"),
    "step_stream": ("answer streams", "응답 스트리밍"),
    "step_finish": ("gateway finishes", "게이트웨이 마무리"),
    "step_open": ("under way", "진행 중"),
    "pieces": ("pieces", "조각"),
    "start": ("Start", "시작"),
    "where": ("Where", "어디서"),
    "verdict": ("Verdict", "결과"),
    "score": ("Compared by", "비교 기준"),
    "unit_usd": ("USD", "USD"),
    "unit_load": ("load", "부하"),
    "unit_calls": ("calls in flight", "처리 중인 호출"),
    "chosen": ("chosen", "선택됨"),
    "not_compared": ("not compared", "비교에서 빠짐"),
    "decision": ("Decision", "판단"),
    "before": ("Before", "이전"),
    "after": ("After", "이후"),
    "reserved": ("Reserved", "미리 잡은 양"),
    "unknown": ("unknown", "모름"),
    "usage": ("Tokens and dollars", "토큰과 비용"),
    "cached_input": ("of it cached upstream", "그중 업스트림 캐시"),
    "reasoning": ("of it thoughts", "그중 추론"),
    "estimated": ("estimated", "추정"),
    "failed_tokens": ("used by failed attempts", "실패한 시도가 쓴 양"),
    "saved_here": ("saved", "아낀 비용"),
    "cache": ("Cache", "캐시"),
    "batch": ("Batch", "묶음"),
    "batch_of": ("callers shared the upstream call", "건이 업스트림 호출 하나를 나눠 씀"),
    "overflow": ("Long prompt", "긴 프롬프트"),
    "truncated": ("Cut short", "잘린 응답"),
    "answer_headers": ("Headers of the upstream", "업스트림의 헤더"),
    "conversation": ("Conversation", "대화"),
    "part_thought": ("thoughts", "추론"),
    "part_tool_call": ("tool call", "도구 호출"),
    "part_image": ("image", "이미지"),
    "part_audio": ("audio", "오디오"),
    "part_file": ("file", "파일"),
    "cut": ("Longer than what is kept; the end is missing.", "보관 한도보다 길어서 끝부분이 없습니다."),
    "copy": ("Copy", "복사"),
    "copied": ("Copied", "복사했습니다"),
    "as_curl": ("The request as curl", "curl로 보내기"),
    "as_python": ("The request in Python", "Python으로 보내기"),
    "masked_note": (
        "Keys in it are masked; $SLUICE_KEY stands for yours.",
        "키는 가려져 있습니다. $SLUICE_KEY 자리에 키를 넣으세요.",
    ),
    "try_note": (
        "Sends a chat request through the gateway. The key stays in this page and is not stored.",
        "게이트웨이로 채팅 요청을 보냅니다. 키는 이 페이지 안에만 있고 저장되지 않습니다.",
    ),
    "try_key": ("Key", "키"),
    "try_prompt": ("Message", "메시지"),
    "try_stream": ("Stream", "스트리밍"),
    "send": ("Send", "보내기"),
    "stop": ("Stop", "중지"),
    "answer": ("Answer", "응답"),
    "how_it_went": ("How it went", "처리 과정"),
    "try_script": ("This needs JavaScript. In a terminal:", "JavaScript가 필요합니다. 터미널에서는 이렇게 보냅니다."),
    "yes": ("yes", "예"),
}

_REASONS_KO: Final[Mapping[str, str]] = {
    "refused": "게이트웨이가 {status} {code}(으)로 거부했습니다: {message}",
    "failed": "{status} {code}(으)로 실패했습니다: {message}",
    "client_gone": "응답이 끝나기 전에 클라이언트가 연결을 끊었습니다.",
    "truncated": "스트림이 완성되기 전에 끊겼습니다.",
    "attempt_failed": "{upstream}/{model} 시도가 실패했습니다({result}): {reason}",
    "skipped_breaker": "{upstream}/{model}: 실패가 거듭되어 서킷 브레이커가 열려 있어 건너뛰었습니다.",
    "skipped_paused": "{upstream}/{model}: 잠시 쉬어 달라고 해서 건너뛰었습니다.",
    "excluded": "{upstream}/{model}: 이 요청을 맡을 수 없었습니다({reason}).",
    "elsewhere": "첫 번째 후보 {first} 대신 {upstream}/{model} 쪽에서 응답했습니다.",
    "fallback": "{asked}의 후보가 모두 응답하지 못해 대체 모델 {upstream}/{model} 쪽에서 응답했습니다.",
    "slow_body": "느림: 클라이언트의 요청이 도착하는 데 {ms} ms 걸렸습니다.",
    "slow_wait": "느림: {upstream}의 빈자리를 {ms} ms 기다렸습니다.",
    "slow_retries": "느림: 실패한 시도와 그 뒤의 쉼에 {ms} ms 걸렸습니다.",
    "slow_first_token": "느림: {upstream}의 첫 토큰까지 {ms} ms 걸렸습니다.",
    "slow_upstream": "느림: {upstream}의 응답까지 {ms} ms 걸렸습니다.",
    "slow_stream": "느림: 응답을 {ms} ms 동안 스트리밍했습니다(토큰 {output}개).",
    "slow_gateway": "느림: 게이트웨이 자체에서 {ms} ms 걸렸습니다.",
    "cached": "캐시에서 응답했습니다. 업스트림은 호출하지 않았습니다.",
    "collapsed": "진행 중이던 같은 호출의 응답을 함께 받았습니다.",
    "batch": "업스트림 호출 하나를 다른 {others}건과 나눠 썼습니다.",
    "dear_retries": "비쌈: 실패한 시도도 토큰 {tokens}개를 썼습니다.",
    "dear_price": "비쌈: {upstream}/{model}의 입력 백만 토큰은 {price} USD이고, {cheaper}의 값은 {less} USD입니다.",
    "unpriced": "{upstream}/{model}의 가격을 모릅니다.",
    "usage_estimated": "업스트림이 사용량을 알려 주지 않아 토큰 수를 추정했습니다.",
    "output_cut": "응답이 중간에 잘렸습니다: {reason}.",
    "overflow": "프롬프트가 컨텍스트 창보다 길었습니다: {reason}.",
    "open": "진행 중입니다.",
}
_EXCLUDED_KO: Final[Mapping[str, str]] = {
    "capability": "요청에 필요한 기능이 없음",
    "window": "컨텍스트 창이 작음",
    "budget": "키의 남은 예산에 비해 비쌈",
    "unusable": "서킷 브레이커가 열려 있거나, 잠시 쉬어 달라고 함",
}


class Words:
    """The words of one language: `words("calls")`."""

    def __init__(self, language: str) -> None:
        self.language = language if language in LANGUAGES else LANGUAGES[0]
        self._number = LANGUAGES.index(self.language)

    def __call__(self, name: str) -> str:
        """The text of this name."""
        return TEXTS[name][self._number]

    def known(self, group: str, name: str) -> str:
        """The text `group_name` if there is one, else the name as it is: states and reasons of the gateway."""
        text = TEXTS.get(f"{group}_{name}")
        return name if text is None else text[self._number]

    def excluded(self, excluded: str) -> str:
        """Why a candidate was not compared."""
        return excluded_sentence(excluded, _EXCLUDED_KO if self._number else EXCLUDED)

    def reason(self, reason: CallReason) -> str:
        """The sentence of a reason."""
        if not self._number:
            return reason.text
        values = dict(reason.values)
        if reason.code == "excluded":
            codes = {text: code for code, text in EXCLUDED.items()}
            sentence, bracket, detail = values["reason"].partition(" (")
            values["reason"] = _EXCLUDED_KO[codes[sentence]] + bracket + detail
        return _REASONS_KO[reason.code].format_map(values)


def spoken(accept_language: str) -> str:
    """The language of a browser that sends this `accept-language` header."""
    first = accept_language.partition(",")[0].partition(";")[0].strip().lower()
    return "ko" if first.partition("-")[0] == "ko" else LANGUAGES[0]


SPOKEN_REASONS: Final = (SENTENCES.keys(), _REASONS_KO.keys())
"""The codes that each language has a sentence for."""
