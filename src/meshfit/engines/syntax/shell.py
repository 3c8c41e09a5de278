"""Options of the command that a shell script runs, without running it.

Understood are comments, continued lines, ``NAME=value``, ``NAME="several words"``, ``NAME=( words )``,
``+=``, ``export``, and ``$NAME``, ``${NAME}``, ``${NAME:-default}``, ``${NAME[@]}`` of names that the script
itself sets before, or ``#SBATCH`` lines, and ``$((...))`` of whole numbers. What else a shell would work
out stays as written. Texts that the script gives to other commands (``sbatch <<EOF``) are read where it
has no program itself; of a manifest of Kubernetes or Compose the commands of its containers.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from meshfit.engines.syntax.arithmetic import whole_value
from meshfit.engines.syntax.manifest import as_script
from meshfit.engines.syntax.setting import Setting
from meshfit.engines.syntax.shell_words import Command, Word, commands_of
from meshfit.errors import InputError

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_REFERENCE = re.compile(
    r"\$\{([A-Za-z_]\w*)(?:\[[@*]\])?(?::?[-=]((?:[^{}]|\{[^{}]*\})*))?\}|\$([A-Za-z_]\w*)"
)
_SUM = re.compile(r"\$\(\(((?:[^()$`]|\([^()$`]*\))*)\)\)")
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*(=.*)?", re.DOTALL)

PYTHON_FILE = re.compile(r"\S*\.py(?= |$)")
"""What most programs that train are started as."""

_DECLARES = ("export", "local", "declare", "readonly", "typeset", "let")
_BEFORE = ("then", "do", "else", "elif", "if", "while", "until", "!", "{", "exec", "eval", "time")
_OPENS, _CLOSES = ("if", "case", "for", "while", "until", "select"), ("fi", "esac", "done")
_PRINTS = ("echo", "printf", "cat")
_TESTS = ("[", "[[", "test")
_SHELLS = ("bash", "sh", "zsh")
_PER_HOST = frozenset(
    ("--node-rank", "--node_rank", "--machine-rank", "--machine_rank", "--headless",
     "--data-parallel-start-rank", "--data-parallel-rank")
)  # fmt: skip
"""Options in which the commands of the hosts of one run differ."""
_LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "deepspeed")


@dataclass(frozen=True, kw_only=True)
class Script:
    """What a script sets.

    Attributes:
        variables: the last value of each; words of a list are joined by spaces.
        launcher: the options between the launcher of ranks (torchrun) and the program.
        settings: the options of the program, ``--name value`` and ``--name=value``.
        positional: its words that no option takes, as written out.
        has_program: whether there is one; else options and words are those of all commands.
        left_open: references among them to what the script does not set, with their lines.
    """

    variables: Mapping[str, str]
    launcher: tuple[Setting, ...]
    settings: tuple[Setting, ...]
    positional: tuple[Setting, ...]
    has_program: bool
    left_open: tuple[Setting, ...]


def read_script(
    text: str,
    values: Mapping[str, str],
    marks: Collection[str] = (),
    program: re.Pattern[str] = PYTHON_FILE,
) -> Script:
    """Variables and options of a script, or of one command line.

    The options are those behind the program of the command that has one of ``marks``; where there is
    no program, as in a file of arguments, all that are set.

    Args:
        values: option -> how many values it takes: ``flag``, ``one``, ``many`` or a number. Of one that
            is not listed, a word that follows is its value.
        program: what it begins with, in one word or two (``vllm serve``).

    Raises:
        InputError: a quote or bracket is never closed; several commands have other options; options
            hang on a condition. Names the line.
    """
    text = text.removeprefix("\ufeff")
    reading = _Reading(variables=_of_slurm(text))
    for command in commands_of(as_script(text) or text):
        reading.take(command)
    started = _program(reading, values, marks, program)
    for document in reading.documents if started is None else ():
        if program.search(document.text):
            for command in commands_of(document.text, document.line):
                reading.take(command)
            started = _program(reading, values, marks, program)
    before, words = started or _all_commands(reading)
    return Script(
        variables={
            name: " ".join(w.text for w in held) for name, held in reading.variables.items()
        },
        launcher=tuple(_settings(before, values)),
        settings=tuple(_settings(words, values)),
        positional=tuple(_positional(words, values)),
        has_program=started is not None,
        left_open=tuple(
            Setting(name=word.text, value=word.text, line=word.line)
            for word in words
            if _REFERENCE.fullmatch(word.text) and not word.is_quoted
        ),
    )


@dataclass(kw_only=True)
class _Reading:
    """A script, as far as it has been read.

    Attributes:
        unsure: variables that were last set under a condition -> the line.
        depth: conditions and loops that are open; tests: whether the last command was a condition.
        loose: options that variables hold; commands: what is run, with variables put in.
        documents: texts that are given to commands.
    """

    variables: dict[str, tuple[Word, ...]] = field(default_factory=dict)
    unsure: dict[str, int] = field(default_factory=dict)
    loose: list[Word] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    documents: list[Word] = field(default_factory=list)
    depth: int = 0
    tests: bool = False

    def take(self, command: Command) -> None:
        """Read one more command."""
        if command[0].is_document:
            self.documents.append(command[0])
            return
        words = list(command)
        hangs = self.tests and bool(words[0].hangs_on)
        self.tests = words[0].text in _TESTS or hangs
        self._follow(words)
        declares = bool(words) and words[0].text in _DECLARES
        words = words[1:] if declares else words
        while words and (declares or _ASSIGNMENT.match(words[0].text) is not None):
            self._assign(words.pop(0), is_sure=not (self.depth or hangs))
        if (inner := _given_to_a_shell(words)) is not None:
            self._take_inner(inner)
        elif words and words[0].text not in _PRINTS:
            self.commands.append(tuple(self._expanded(words)))

    def _take_inner(self, script: Word) -> None:
        """Read what is given to a shell: the variable that holds it, or commands of their own."""
        if (held := self._whole(script)) is not None:
            self.commands.append(held)
            return
        for command in commands_of(script.text, script.line):
            self.take(command)

    def _follow(self, words: list[Word]) -> None:
        """Words that open or close a condition or a loop; takes them off."""
        while words and words[0].text in (*_BEFORE, *_OPENS, *_CLOSES):
            word = words.pop(0)
            self.depth += (word.text in _OPENS) - (word.text in _CLOSES)
            if word.text in ("for", "select") and words:
                self.unsure[words[0].text] = word.line
                words.clear()

    def _assign(self, word: Word, *, is_sure: bool) -> None:
        match = _ASSIGNMENT.fullmatch(word.text)
        if match is None:
            return
        name, appended, value = match.groups()
        held = word.listed
        if held is None:
            rows = commands_of(value, word.line) if _holds_options(value) else ()
            held = tuple(w for row in rows for w in row) or (Word(text=value, line=word.line),)
        held = tuple(self._expanded(held))
        self.loose += held if any(map(_is_option, held)) else ()
        before = self.variables.get(name, ())
        if not is_sure:
            self.unsure[name] = word.line
        elif not appended:
            self.unsure.pop(name, None)
        self.variables[name] = before + held if appended else held

    def _whole(self, word: Word) -> Command | None:
        """The words of the variable that a word refers to and nothing else."""
        match = _REFERENCE.fullmatch(word.text)
        name = (match[1] or match[3]) if match else ""
        held = self.variables.get(name)
        if held and name in self.unsure and any(map(_is_option, held)):
            raise InputError(
                f"line {self.unsure[name]}: {name} has options that hang on a condition; keep the case "
                f"that is meant"
            )
        return None if name in self.unsure else held

    def _expanded(self, words: Iterable[Word]) -> Iterator[Word]:
        for word in words:
            held = self._whole(word)
            if held is None or (word.is_quoted and not any(map(_is_option, held))):
                yield replace(word, text=self._text(word.text))
            elif any(map(_is_option, held)):
                yield from held
            else:
                yield from (replace(one, line=word.line) for one in held)

    def _text(self, text: str) -> str:
        """``text`` with what the script has set put in."""

        def value(match: re.Match[str]) -> str:
            name, default = match[1] or match[3], match[2]
            if name in self.variables and name not in self.unsure:
                return " ".join(word.text for word in self.variables[name])
            return match[0] if default is None or name in self.unsure else self._text(default)

        return _SUM.sub(_worked_out, _REFERENCE.sub(value, self._sum(text)))

    def _sum(self, text: str) -> str:
        """Names inside ``$((...))``, which need no ``$`` there, with one."""
        if "$((" not in text:
            return text
        return re.sub(
            r"(?<![\w$\{])([A-Za-z_]\w*)",
            lambda match: f"${{{match[1]}}}" if match[1] in self.variables else match[0],
            text,
        )


def _given_to_a_shell(words: Sequence[Word]) -> Word | None:
    """The script in ``srun bash -c "..."``, whatever stands in front; None where there is none."""
    texts = [word.text for word in words]
    shells = (at for at, text in enumerate(texts) if text.rpartition("/")[2] in _SHELLS)
    for at in shells:
        flags = list(takewhile(lambda text: text.startswith("-"), texts[at + 1 :]))
        if flags and re.fullmatch(r"-[a-z]*c", flags[-1]) and at + 1 + len(flags) < len(words):
            return words[at + 1 + len(flags)]
    return None


_SBATCH = re.compile(r"^#SBATCH\s+(-\w|--[\w-]+)[ =]*([^\s#]+)", re.MULTILINE)


def _of_slurm(text: str) -> dict[str, tuple[Word, ...]]:
    """Variables that Slurm sets in a job of the numbers in a script's ``#SBATCH`` lines."""
    asked = {match[1]: match[2].rpartition(":")[2] for match in _SBATCH.finditer(text)}
    asked = {name: value for name, value in asked.items() if value.isdigit()}
    nodes = asked.get("--nodes") or asked.get("-N")
    each = asked.get("--ntasks-per-node") or asked.get("--tasks-per-node")
    tasks = asked.get("--ntasks") or asked.get("-n")
    if tasks is None and nodes and each:
        tasks = str(int(nodes) * int(each))
    gpus = asked.get("--gpus-per-node") or asked.get("--gres")
    found = {
        "SLURM_NNODES": nodes,
        "SLURM_JOB_NUM_NODES": nodes,
        "SLURM_NTASKS": tasks,
        "SLURM_NPROCS": tasks,
        "SLURM_NTASKS_PER_NODE": each,
        "SLURM_GPUS_PER_NODE": gpus,
        "SLURM_GPUS_ON_NODE": gpus,
    }
    return {name: (Word(text=value, line=1),) for name, value in found.items() if value}


def _worked_out(match: re.Match[str]) -> str:
    value = whole_value(match[1])
    return match[0] if value is None else str(value)


def _is_option(word: Word) -> bool:
    return _OPTION.fullmatch(word.text) is not None


def _holds_options(value: str) -> bool:
    return bool(re.search(r"(^|\s)--?[A-Za-z]", value)) or "$" in value


def _program(
    reading: _Reading, values: Mapping[str, str], marks: Collection[str], pattern: re.Pattern[str]
) -> tuple[Command, Command] | None:
    """Words of the launcher, and those behind the program; None where there is none.

    Raises:
        InputError: several commands train, with different options.
    """
    split = (_split(command, pattern) for command in reading.commands)
    found = [one for one in split if one is not None]
    most = max((_count(words, marks) for _, words in found), default=0)
    train = [one for one in found if _count(one[1], marks) == most] if most or not marks else []
    options = [
        frozenset((s.name, s.value) for s in _settings(words, values) if s.name not in _PER_HOST)
        for _, words in train
    ]
    if len(set(options)) > 1:
        raise InputError(
            f"several programs get other options each (lines "
            f"{', '.join(str(words[0].line) for _, words in train)}); keep one"
        )
    if train:
        launcher, program = train[0]
        return launcher, program[1:]
    return None


def _all_commands(reading: _Reading) -> tuple[Command, Command]:
    """Words of all commands, and beside them options that variables hold and no command uses."""
    commands = tuple(word for command in reading.commands for word in command)
    places = {(word.text, word.line) for word in commands}
    loose = tuple(word for word in reading.loose if (word.text, word.line) not in places)
    return commands, (*loose, *commands)


def _count(words: Command, marks: Collection[str]) -> int:
    """How many of the marks a command has."""
    return len({word.text.partition("=")[0] for word in words} & set(marks))


def _split(command: Command, pattern: re.Pattern[str]) -> tuple[Command, Command] | None:
    """What stands between the launcher and the program, and from the program on; None without options."""
    texts = [word.text for word in command]
    pairs = (" ".join(texts[at : at + 2]) for at in range(len(texts)))
    launch = next((at for at, text in enumerate(texts) if text in _LAUNCHERS), None)
    program = next((at for at, pair in enumerate(pairs) if pattern.match(pair)), None)
    if program is None or not any(map(_is_option, command[program:])):
        return None
    return () if launch is None else command[launch + 1 : program], command[program:]


def _settings(words: Iterable[Word], values: Mapping[str, str]) -> list[Setting]:
    """Options with as many of the words behind them as they take."""
    return _divided(words, values)[0]


def _positional(words: Iterable[Word], values: Mapping[str, str]) -> list[Setting]:
    """Words that no option takes, without those that only a shell could work out."""
    plain = (word for word in _divided(words, values)[1] if re.fullmatch(r"[^$`]+", word.text))
    return [Setting(name=word.text, value=word.text, line=word.line) for word in plain]


def _divided(words: Iterable[Word], values: Mapping[str, str]) -> tuple[list[Setting], list[Word]]:
    """Options with their values, and words that belong to none."""
    found: list[tuple[str, list[str], int]] = []
    rest: list[Word] = []
    taken: list[str] = []
    most = 0
    for word in words:
        if _is_option(word):
            name, equals, value = word.text.partition("=")
            taken = [value] if equals else []
            most = _most(values.get(name, "one"))
            found.append((name, taken, word.line))
        elif len(taken) < most:
            taken.append(word.text)
        else:
            rest.append(word)
    return [_setting(*one) for one in found], rest


def _most(count: str) -> int:
    """Words that an option takes, from how a table of options has it."""
    return int(count) if count.isdigit() else {"flag": 0, "many": 1 << 30}.get(count, 1)


def _setting(name: str, values: list[str], line: int) -> Setting:
    return Setting(name=name, value=" ".join(values) if values else True, line=line)
