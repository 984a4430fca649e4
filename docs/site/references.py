"""References of the site: Markdown made of gpubuf.h and of the declarations for TypeScript, and docstrings as Sphinx takes them."""

import re
import textwrap


def chunks(text):
    """Parts of a file between blank lines that are neither inside a comment nor inside braces."""
    part = []
    for line in [*text.split("\n"), ""]:
        if line.strip() or part and not whole("\n".join(part)):
            part.append(line)
        elif part:
            yield "\n".join(part)
            part = []


def whole(text):
    bare = re.sub(r"/\*.*?\*/|//[^\n]*|'(?:\\.|[^'\\])'|\"(?:\\.|[^\"\\])*\"", "", text, flags=re.S)
    return "/*" not in bare and bare.count("{") == bare.count("}")


def comment_of(part):
    """(its words as Markdown, what follows it)"""
    comment, code = re.match(r"\s*(/\*.*?\*/)?\s*(.*)", part, re.S).groups()
    words = re.sub(r"^[ \t]*\*(?: |$)", "", re.sub(r"^/\*+|\*/$", "", comment or ""), flags=re.M)
    words = textwrap.dedent(re.sub(r"^ {2,3}(?=\S)", "", words, flags=re.M)).strip()
    words = re.sub(r"(?<![\w*`])\*(\w+)(?![\w*])", r"`*\1`", words)  # *client is no emphasis
    return re.sub(r"(?<!`)\b(gpubuf_\w+)\(\)", r"{c:func}`\1`", words), code


def directive(prototype, words=""):
    return f"```{{c:function}} {prototype}\n{words}\n```\n"


def of_header(text):
    """gpubuf.h in the order in which it stands."""
    text = re.sub(r"#ifdef __cplusplus\n.*?#endif\n", "", text, flags=re.S)
    out = []
    for part in (one for chunk in chunks(text) for one in re.split(r"(?<=;)\n(?=/\*)", chunk)):
        heading = re.fullmatch(r"/\* -+ (.*?) -+ \*/", part)
        if heading:
            out.append(f"## {heading[1][0].upper()}{heading[1][1:]}\n")
            continue
        words, code = comment_of(part)
        if code.startswith("GPUBUF_API"):
            prototypes = [" ".join(one.replace("GPUBUF_API", "").split()) for one in code.split(";") if one.strip()]
            out += [directive(one) for one in prototypes[:-1]] + [directive(prototypes[-1], words)]
        elif not code or re.match(r"#(?:if|endif|include|define GPUBUF_H)|struct \w+;|\}", code):
            out.append(words + "\n")
        else:
            out.append(f"{words}\n\n```c\n{code}\n```\n")
    return "\n" + "\n".join(out)


def of_types(text, module):
    """The declarations of a module of the package for Node."""
    out = [f"## {'gpubufd/' + module if module != 'index' else 'gpubufd'}\n"]
    for part in chunks(text):
        words, code = comment_of(part)
        name = re.search(r"export (?:declare )?(?:abstract )?(?:function|class|interface|type|const) (\w+)", code)
        if name:
            out.append(f"### {name[1]}\n\n{words}\n\n```ts\n{code}\n```\n")
    return "\n" + "\n".join(out)


def of(file):
    text = file.read_text(encoding="utf-8")
    return of_header(text) if file.suffix == ".h" else of_types(text, file.name.partition(".")[0])


def as_restructured_text(app, what, name, thing, options, lines):
    """Examples, which are indented, become blocks of code; a name's last _ is no link."""
    text = re.sub(r"(?<=\w)_(?=[^\w`]|$)", r"\\_", "\n".join(lines))
    text = re.sub(r"(?<![\w*`\\])\*(?=\*?\w+\b(?!\*))", r"\\*", text)
    text = re.sub(r"((?:\A|\n)(?![ \n])[^\n]*\n)\n(?= {4}\S)", r"\1\n.. code-block:: python\n\n", text)
    lines[:] = text.split("\n")
