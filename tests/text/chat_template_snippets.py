"""Short templates, each about one corner of the language, for comparison with jinja2. All see VARIABLES."""

VARIABLES = {
    "s": "Hello, World", "e": "", "u": "Grüße 世界 👩\u200d🚀", "n": 5, "f": 2.5, "neg": -7, "t": True, "no": None,
    "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "d": {"b": 1, "a": 2, "C": 3},
    "nest": {"x": {"y": [10, 20, {"z": "deep"}]}},
    "ms": [{"role": "user", "content": "hi", "n": 2}, {"role": "assistant", "content": "yo", "n": 1},
           {"role": "user", "content": "bye", "n": 3}],
    "big": 9007199254740993, "tiny": 1e-7, "html": "<a href='x'>\"&</a>", "ctxvar": "from context", "zero": 0,
    "lines": "a\nb\r\nc\n\n d",
}

# One snippet a line.
SNIPPETS = [line for line in r'''
{{ 1 + 2 * 3 - 4 / 2 }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }}
{{ 1/3 }} {{ 1e16 }} {{ 1e15 }} {{ 123456789.123 }} {{ 1e-5 }} {{ 0.0001 }} {{ 1.0 }} {{ -0.0 }} {{ 1e300 * 1e10 }} {{ 5e-324 }} {{ 100.0 }}
{{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1_000 }} {{ 1_0.5_0 }} {{ 1e2 }} {{ 1E-2 }}
{{ n }} {{ f }} {{ t }} {{ no }} {{ l }} {{ d }} {{ nest }} {{ undefinedvar }} {{ (1,) }} {{ () }} {{ (1,2) }} {{ [] }} {{ {} }}
{{ 'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1,'x'] }}
{{ "it's" }} {{ ["it's", 'say "x"', 'both \' and "', 'back\\slash', 'nl\n', 'tab\t', '\x00\x7f', 'é', '\u200b', '\u00a0', '\U0001F600', '\u3000'] }}
{{ {'a': 1, 2: 'b', none: [], true: {}, 1.5: (1,)} }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ [1,2] < [1,3] }} {{ (1,2) == [1,2] }} {{ none == none }} {{ 1 != 2 }} {{ 'a' == 1 }}
{{ 3 in l }} {{ 9 not in l }} {{ 'ell' in s }} {{ 'b' in d }} {{ 1 in d }} {{ '' in s }} {{ 'x' in '' }} {{ '' in '' }}
{{ 'a' in 5 }}
{{ 5 in 'a' }}
{{ not true }} {{ not '' }} {{ not [] }} {{ true and 'x' }} {{ '' or 'y' }} {{ 0 or none }} {{ 1 and 2 or 3 }} {{ not 1 == 2 }}
{{ 'yes' if t else 'no' }} {{ 'yes' if not t }} {{ 'a' if false else 'b' if false else 'c' }}
{{ s[0] }} {{ s[-1] }} {{ s[1:3] }} {{ s[::-1] }} {{ s[:-2] }} {{ s[-3:] }} {{ s[::2] }} {{ s[10:2:-2] }} {{ s[100:] }} {{ s[5:1] }} {{ s[-100:2] }}
{{ u[0] }} {{ u[2] }} {{ u[6:8] }} {{ u[::-1] }} {{ u|length }} {{ u[-1] }} {{ u[7] }}
{{ l[0] }} {{ l[-1] }} {{ l[1:] }} {{ l[::-1] }} {{ l[5] }} {{ l[5] is defined }} {{ (1,2,3)[1:] }} {{ l[:2] + l[2:] }}
{{ l[0:2:0] }}
{{ n[1:2] }}
{{ d[1:2] }}
{{ f[:1] is defined }}
{% for i in l %}{% continue %}{% else %}E{% endfor %}
{% for i in l %}{% break %}{% else %}E{% endfor %}
{% for i in l %}{% if loop.first %}x{% else %}{% continue %}{% endif %}{% else %}E{% endfor %}
{{ big / 3 }} {{ 9223372036854775807 / 3 }} {{ -9223372036854775807 / 7 }} {{ 1 / 9223372036854775807 }} {{ 9007199254740993 / 1 }}
{{ (n|map('upper')) is defined }} {{ (n|batch(2)) is defined }} {{ (n|select) is defined }}
{{ n|map('upper')|list }}
{{ 12|truncate }} {{ [1]|truncate }} {{ none|truncate(9) }}
{{ 12345678|truncate(2) }}
{{ l['x'] }} {{ l.x }} {{ s.x }} {{ no.x }} {{ n.x is defined }}
{{ nest.x.y[2].z }} {{ nest['x']['y'][-1]['z'] }} {{ nest.x['y'].0 }}
{{ nest.q.r }}
{{ undefinedvar.x }}
{{ undefinedvar['x'] }}
{{ undefinedvar + 1 }}
{{ undefinedvar() }}
{{ undefinedvar == undefinedother }} {{ undefinedvar is defined }} {{ undefinedvar|length }} {{ undefinedvar|list }} {{ undefinedvar ~ 'x' }} {{ undefinedvar == '' }} {{ undefinedvar in [1] }}
{{ 'a' * 3 }} {{ 3 * 'ab' }} {{ [1] * 2 }} {{ 'x' * -1 }} {{ (1,) * 2 }}
{{ 'a' + 1 }}
{{ [1] + (2,) }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1.0 % 0 }}
{{ -'a' }}
{{ '%s is %d and %5.2f|%-5s|%05d|%x|%%' % ('a', 3, 2.5, 'b', 42, 255) }}
{{ '%s' % 'x' }} {{ '%s' % 5 }} {{ '%(a)s' % {'a': 1} }} {{ '%r' % 'q' }} {{ '%s %s' % (1,) }}
{{ '%d' % 'x' }}
{{ '%s' % (1, 2) }}
{{ 'abc' % () }} {{ 'x %s' % [1,2] }} {{ '%+d % d %#x %.3s|%10s|%e|%g' % (5, 5, 255, 'abcdef', 'r', 12345.678, 0.0001) }}
{{ "%s"|format('a') }} {{ "%(x)s-%(y)s"|format(x=1, y=2) }} {{ "%s %s"|format(1, 2) }}
{{ '{} {}'.format(1, 'a') }} {{ '{0} {1} {0}'.format('a', 'b') }} {{ '{x}-{y}'.format(x=1, y='z') }} {{ '{{}}'.format() }} {{ '{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}|{:,}|{:+}|{:x}|{:#x}|{:%}|{:e}'.format('a','b','c',42,3.14159,1234567,5,255,255,0.5,12345.6) }}
{{ '{0[a]} {0.b} {1[0]}'.format({'a':1,'b':2}, [7]) }} {{ '{!r} {!s}'.format('x', 'y') }} {{ '{:*^7}'.format('é') }} {{ '{:>3}'.format(true) }} {{ '{}'.format(none) }} {{ '{}'.format([1,'a']) }} {{ '{:5}|{:5}'.format(1, 'a') }} {{ '{:.3}'.format('abcdef') }} {{ '{:g}'.format(1e20) }} {{ '{:.3}'.format(3.14159) }}
{{ '{} {0}'.format(1) }}
{{ '{}'.format() }}
{{ '{'.format() }}
{{ '}'.format() }}
{{ '{:d}'.format('a') }}
{{ '{:>5}'.format([1]) }}
{{ '  x '.strip() }}|{{ '  x '.lstrip() }}|{{ '  x '.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'abcba'.strip('ab') }}|{{ '\u00a0x\u3000'.strip() }}|{{ 'xéx'.strip('éx') }}|{{ 'aXb'.lstrip('ba') }}
{{ 'a,b,,c'.split(',') }} {{ 'a b  c '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a  b c '.split(none, 1) }} {{ ' a  b c '.rsplit(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'abc'.split('') if false }} {{ 'a--b--c'.split('--', maxsplit=1) }} {{ 'a b c'.split(maxsplit=1) }} {{ 'aXXbXXXc'.rsplit('XX') }}
{{ 'abc'.split('') }}
{{ lines.splitlines() }} {{ lines.splitlines(true) }} {{ 'a\x0bb\x0cc\x1cd\u2028e\x85f'.splitlines() }} {{ ''.splitlines() }} {{ '\n'.splitlines() }}
{{ 'aaa'.replace('a', 'b') }} {{ 'aaa'.replace('a', 'b', 2) }} {{ 'abc'.replace('', '-') }} {{ 'abc'.replace('', '-', 2) }} {{ ''.replace('', 'x') }} {{ 'aaa'.replace('aa','b') }} {{ 'é'.replace('', '.') }}
{{ s.startswith('Hell') }} {{ s.endswith(('x', 'ld')) }} {{ s.startswith('l', 2) }} {{ s.endswith('o', 0, 5) }} {{ s.startswith('') }} {{ 'abc'.startswith('b', 1, 2) }} {{ s.startswith(('a','H')) }}
{{ s.startswith(['H']) }}
{{ s.upper() }} {{ s.lower() }} {{ s.title() }} {{ 'hELLO wORLD-x y'.capitalize() }} {{ "they're bill's friends".title() }} {{ 'a1b c'.title() }}
{{ u.upper() }} {{ 'ÀÉÎ'.lower() }} {{ 'straße'.upper() }} {{ 'ΑΣ ΣΑΣ.'.lower() }} {{ 'ǆ ﬁx'.title() }} {{ 'ﬁ'.upper() }} {{ 'İ'.lower()|length }} {{ 'éa'.capitalize() }} {{ 'ярмо'.upper() }} {{ 'ǆ'.capitalize() }}
{{ s|upper }} {{ s|lower }} {{ 'foo bar-baz (qux) [x] {y} <z'|title }} {{ 'FOO'|capitalize }} {{ 5|upper }} {{ 'élan vital'|title }} {{ none|upper }}
{{ 'abcabc'.find('c') }} {{ 'abcabc'.rfind('c') }} {{ 'abc'.find('x') }} {{ 'abcabc'.find('c', 3) }} {{ 'éaéb'.find('b') }} {{ 'abc'.index('b') }} {{ 'abcabc'.count('bc') }} {{ 'aaaa'.count('aa') }} {{ 'abc'.count('') }} {{ 'abcabc'.find('a', 1, 3) }} {{ 'abc'.find('', 3) }} {{ 'abc'.find('', 4) }} {{ 'abc'.rfind('') }}
{{ 'abc'.index('x') }}
{{ ', '.join(['a','b']) }} {{ ''.join([]) }} {{ '-'.join('abc') }} {{ '-'.join(d) }}
{{ ', '.join([1]) }}
{{ 'TestHook'.removeprefix('Test') }} {{ 'a.txt'.removesuffix('.txt') }} {{ 'abc'.removeprefix('x') }}
{{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('=') }} {{ 'abc'.rpartition('=') }}
{{ 'a'.center(4) }}|{{ 'ab'.center(5, '*') }}|{{ 'a'.ljust(3) }}|{{ 'a'.rjust(3, '0') }}|{{ '-42'.zfill(5) }}|{{ '42'.zfill(1) }}|{{ 'a'|center(5) }}|{{ 'abc'.center(6,'x') }}
{{ d.items() }} {{ d.keys() }} {{ d.values() }} {{ d.get('a') }} {{ d.get('zz') }} {{ d.get('zz', 'def') }} {{ d.items()|list }} {{ d.keys()|list }} {{ d.items()|length }} {{ d.copy() }}
{{ d.get() }}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}
{{ d.pop('a') }}
{{ l.append(1) }}
{{ d.update({'x':1}) }}
{{ d.update is defined }} {{ l.append is defined }} {{ d.update }} {{ s.upper is defined }} {{ s.upper is callable }} {{ d.items is callable }}
{{ l.index(1) }} {{ l.count(3) }} {{ (1,2).index(2) }} {{ (1,1).count(1) }}
{{ l.index(99) }}
{{ l|join(', ') }} {{ ls|join }} {{ ms|join(',', attribute='role') }} {{ 'abc'|join('.') }} {{ [1,none,2.5,'x']|join('|') }} {{ ms|join(attribute='role') }}
{{ l|first }} {{ l|last }} {{ []|first }} {{ ''|last }} {{ s|first }} {{ s|last }} {{ d|first }} {{ d|last }} {{ []|first is defined }} {{ range(3)|last }}
{{ l|length }} {{ s|length }} {{ d|count }} {{ range(4)|length }} {{ ()|length }}
{{ 5|length }}
{{ none|length }}
{{ l|sort }} {{ ls|sort }} {{ ls|sort(case_sensitive=true) }} {{ l|sort(reverse=true) }} {{ ms|sort(attribute='n')|map(attribute='n')|list }} {{ ms|sort(attribute='role,n')|map(attribute='content')|join(',') }} {{ [1, 2.5, true]|sort }} {{ d|sort }}
{{ [1,'a']|sort }}
{{ [none, 1]|sort }}
{{ d|dictsort }} {{ d|dictsort(true) }} {{ d|dictsort(false, 'value') }} {{ d|dictsort(reverse=true) }} {{ d|dictsort(by='value', reverse=true) }}
{{ d|dictsort(by='x') }}
{{ l|dictsort }}
{{ ls|unique|list }} {{ [1,1.0,true,'1',2]|unique|list }} {{ ls|unique(case_sensitive=true)|list }} {{ ms|unique(attribute='role')|map(attribute='content')|list }} {{ ['a','A','b']|unique|list }}
{{ [[1],[1]]|unique|list }}
{{ l|reverse|list }} {{ s|reverse }} {{ (1,2)|reverse|list }} {{ d|reverse|list }} {{ d.items()|reverse|list }}
{{ 5|reverse }}
{{ l|map('string')|list }} {{ ms|map(attribute='role')|list }} {{ ms|map(attribute='zz', default='q')|list }} {{ ls|map('upper')|join }} {{ ['a b','c d']|map('replace',' ','_')|list }} {{ ms|map(attribute='zz')|list }} {{ [[1,2],[3]]|map('first')|list }} {{ [{'a':{'b':1}}]|map(attribute='a.b')|list }} {{ [[5,6]]|map(attribute=1)|list }} {{ [[5,6]]|map(attribute='1')|list }}
{{ l|map('nofilter')|list }}
{{ l|map|list }}
{{ [1,0,2,none]|select|list }} {{ [1,2,3,4]|select('odd')|list }} {{ [1,2,3]|reject('even')|list }} {{ [1,2,3]|select('>', 1)|list }} {{ [1,5]|select('in', [5])|list }} {{ ms|selectattr('role','equalto','user')|list|length }} {{ ms|rejectattr('role','eq','user')|map(attribute='content')|join }} {{ ms|selectattr('zz')|list }} {{ ms|selectattr('zz','defined')|list }} {{ ms|selectattr('n','gt',1)|map(attribute='n')|list }}
{{ l|select('notest')|list }}
{{ l|select('notest') is iterable }}
{{ l|selectattr|list }}
{{ ms|selectattr('role') is iterable }} {{ (ms|selectattr('role')) is sequence }} {{ 'yes' if []|select else 'no' }} {{ 'yes' if ms|selectattr('zz') else 'no' }} {{ (l|select)[0] is defined }} {{ (l|select).x is defined }}
{{ l|select|length }}
{{ l|select|last }}
{% set g = l|select %}{{ g|list }}{{ g|list }}{% for x in g %}x{% endfor %}{{ 1 in g }}
{{ l|sum }} {{ [1.5, 2]|sum }} {{ ms|sum(attribute='n') }} {{ []|sum }} {{ l|sum(start=10) }} {{ [[1],[2]]|sum(start=[]) }}
{{ ['a']|sum }}
{{ l|min }} {{ l|max }} {{ ls|min }} {{ ls|max }} {{ ls|min(case_sensitive=true) }} {{ ms|max(attribute='n') }} {{ []|min is defined }} {{ [1, 1.0]|max }} {{ 'hello'|max }}
{{ '5'|int }} {{ ' 42 '|int }} {{ '3.7'|int }} {{ 'x'|int }} {{ 'x'|int(9) }} {{ '0x1F'|int(base=16) }} {{ 'ff'|int(0, 16) }} {{ 3.9|int }} {{ -3.9|int }} {{ none|int }} {{ true|int }} {{ '1_000'|int }} {{ '1e3'|int }} {{ ''|int }} {{ '0b11'|int(base=0) }} {{ [1]|int }} {{ '+5'|int }} {{ '- 5'|int }} {{ 'inf'|int }} {{ 'nan'|int }} {{ '1__0'|int }} {{ '010'|int }}
{{ '5.5'|float }} {{ 'x'|float }} {{ 'x'|float(1.5) }} {{ 3|float }} {{ none|float }} {{ '1e3'|float }} {{ 'inf'|float }} {{ 'nan'|float }} {{ ' 2 '|float }} {{ '-Infinity'|float }} {{ '1_0.5'|float }} {{ '.5'|float }} {{ '5.'|float }} {{ 'nan(1)'|float }} {{ '1e999'|float }}
{{ undefinedvar|int }}
{{ -5|abs }} {{ (-5)|abs }} {{ neg|abs }} {{ -2.5|abs }} {{ true|abs }}
{{ 'a'|abs }}
{{ 2.5|round }} {{ 3.5|round }} {{ 2.567|round(2) }} {{ 2.1|round(method='ceil') }} {{ 2.9|round(0,'floor') }} {{ 42|round }} {{ 2.675|round(2) }} {{ 0.5|round }} {{ 1.005|round(2) }} {{ 42.55|round(1,'floor') }} {{ true|round }} {{ -2.5|round }} {{ 1e20|round }}
{{ 'a'|round }}
{{ 2.5|round(method='x') }}
{{ undefinedvar|default('x') }} {{ none|default('x') }} {{ none|default('x', true) }} {{ ''|d('y', boolean=true) }} {{ 0|default(5) }} {{ undefinedvar|default }}
{{ undefinedvar.x|default('a') }}
{{ nest.q|default('a') }} {{ nest.q.r|default('a') if nest.q is defined else 'b' }}
{{ ' x '|trim }}|{{ 'xxaxx'|trim('x') }}|{{ 5|trim }}|{{ none|trim }}|{{ undefinedvar|trim }}
{{ 'a b'|replace(' ', '_') }} {{ 5|replace('5', 6) }} {{ 'aaa'|replace('a','b',1) }} {{ 'aaa'|replace('a','b',count=2) }}
{{ 'a\nb\n\nc'|indent }}|{{ 'a\nb'|indent(2) }}|{{ 'a\nb'|indent(2, true) }}|{{ 'a\n\nb'|indent(2, blank=true) }}|{{ 'a\nb'|indent('> ') }}|{{ 'a\nb'|indent(2, first=true) }}|{{ ''|indent }}|{{ 'a\n'|indent }}|{{ 'a\n\n'|indent(1) }}
{{ 5|indent }}
{{ 'hello world foo'|truncate(11) }} {{ 'hello world foo bar'|truncate(9) }} {{ 'hello world foo bar'|truncate(9, true) }} {{ 'hello world'|truncate(5, false, '..', 0) }} {{ 'abcdefghij'|truncate(8, leeway=0) }}
{{ 'a'|truncate(1) }}
{{ 'hello big world'|wordcount }} {{ ''|wordcount }} {{ "don't stop"|wordcount }} {{ '世界 a_b 12'|wordcount }}
{{ [1,2,3,4,5]|batch(2)|list }} {{ [1,2,3]|batch(2, 'x')|list }} {{ [1,2,3,4,5]|slice(2)|list }} {{ [1,2,3,4,5]|slice(3, 'f')|list }} {{ []|batch(3)|list }} {{ [1,2]|slice(5)|list }}
{{ d|items|list }} {{ undefinedvar|items|list }}
{{ l|items|list }}
{{ none|items|list }}
{{ d|tojson }} {{ l|tojson }} {{ s|tojson }} {{ u|tojson }} {{ none|tojson }} {{ true|tojson }} {{ 1.0|tojson }} {{ html|tojson }} {{ (1,2)|tojson }} {{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }} {{ 'a"b\\c\n\t\r\b\f\x01\x7f/é😀'|tojson }} {{ []|tojson }} {{ {}|tojson }} {{ 1e100|tojson }} {{ tiny|tojson }} {{ big|tojson }}
{{ nest|tojson(indent=2) }} {{ [[],{}]|tojson(indent=4) }} {{ l|tojson(indent=0) }} {{ d|tojson(indent='\t') }} {{ d|tojson(sort_keys=true) }} {{ d|tojson(separators=(',',':')) }} {{ u|tojson(ensure_ascii=true) }} {{ u|tojson(true) }} {{ d|tojson(indent=2, separators=(', ', ': ')) }} {{ d|tojson(indent=-1) }} {{ d|tojson(indent=none) }}
{{ undefinedvar|tojson }}
{{ {'a': undefinedvar}|tojson }}
{{ l|map('string')|tojson }}
{{ range(3)|tojson }}
{{ d.items()|tojson }}
{{ {(1,2): 3}|tojson }}
{{ {1: 1, 'a': 2}|tojson(sort_keys=true) }}
{{ html|e }} {{ html|escape|e }} {{ html|safe|e }} {{ html|forceescape }} {{ html|e|forceescape }} {{ 5|e }} {{ html|safe }} {{ ('<'|safe) + '<' }} {{ '<' + ('<'|safe) }} {{ ('<'|safe) ~ '<' }} {{ ('<'|e)|length }} {{ ['<'|e] }} {{ ('<b>'|safe)|upper }} {{ ('a'|safe) * 2 + '<' }} {{ ('<'|safe)[0] + '<' }} {{ ('a b'|safe).split()[0] + '<' }} {{ ('x'|safe|trim) + '&' }} {{ ('a'|safe) is string }} {{ ('a'|safe) is escaped }} {{ 'a' is escaped }} {{ ('a'|safe) == 'a' }} {{ ('%s'|safe) % '<' }} {{ ('{}'|safe).format('<') }} {{ ('-'|safe).join(['<','a']) }} {{ ('a'|safe).replace('a','<') }} {{ ('a'|safe)|replace('a','<') + '<' }} {{ ('a\nb'|safe)|indent(2) + '<' }} {{ ('a'|string|safe) }}
{{ ('<'|safe) + 1 }}
{{ 1 + ('<'|safe) }}
{{ 'a b/c?d=é&'|urlencode }}
{{ 'a'|attr('upper') is defined }} {{ d|attr('a') is defined }} {{ d|attr('items') is defined }}
{{ ms|groupby('role')|length }} {% for g in ms|groupby('role') %}{{ g.grouper }}:{{ g.list|length }};{% endfor %}{% for k, v in ms|groupby('n') %}{{ k }}{{ v|length }}{% endfor %}
{{ ms|groupby('zz', default='none')|map('first')|list }}
{{ 1 is odd }} {{ 2 is even }} {{ 6 is divisibleby 3 }} {{ 6 is divisibleby(4) }} {{ n is number }} {{ 's' is string }} {{ l is iterable }} {{ 5 is iterable }} {{ d is mapping }} {{ l is mapping }} {{ l is sequence }} {{ s is sequence }} {{ d is sequence }} {{ 5 is sequence }} {{ none is none }} {{ t is boolean }} {{ 1 is boolean }} {{ 1 is integer }} {{ true is integer }} {{ 1.0 is float }} {{ true is number }} {{ 1.0 is integer }} {{ t is true }} {{ t is false }} {{ 1 is true }} {{ undefinedvar is undefined }} {{ undefinedvar is iterable }} {{ undefinedvar is sequence }} {{ undefinedvar is mapping }} {{ undefinedvar is string }} {{ undefinedvar is none }}
{{ 'a' is lower }} {{ 'A' is upper }} {{ 'Aa' is upper }} {{ '1' is lower }} {{ 'a1' is lower }} {{ 1 is eq 1 }} {{ 1 is equalto(1) }} {{ 1 is ne 2 }} {{ 2 is gt 1 }} {{ 2 is ge 2 }} {{ 1 is lt 2 }} {{ 1 is le 0 }} {{ 1 is greaterthan 0 }} {{ 1 is lessthan 0 }} {{ 1 is in [1] }} {{ 1 is not in [2] }} {{ l is sameas l }} {{ l is sameas [3,1,2] }} {{ none is sameas none }} {{ 'upper' is filter }} {{ 'nope' is filter }} {{ 'odd' is test }} {{ range is callable }} {{ l is callable }}
{{ 1 is not odd }} {{ 2 is not odd and true }} {{ s is not defined or true }} {{ x is defined and x.y }}
{{ 'a' is odd }}
{{ 1 is notatest }}
{{ range(5)|list }} {{ range(2,5)|list }} {{ range(10,0,-3)|list }} {{ range(3) }} {{ range(1,4) }} {{ range(0,9,3) }} {{ range(5)[2] }} {{ range(0)|list }} {{ 3 in range(5) }} {{ range(3) == range(3) }} {{ range(-3)|list }}
{{ range(100001)|length }}
{{ range(1,2,0) }}
{{ range() }}
{{ range('a') }}
{{ range(1.5) }}
{{ dict(a=1, b=2) }} {{ dict([('x', 1)]) }} {{ dict({'a':1}, b=3) }} {{ dict() }}
{{ dict(a=1)['a'] }} {{ dict(**{'q': 5}) }} {{ range(*[1,3])|list }}
{{ namespace(a=1) }} {{ namespace(a=1).a }} {{ namespace({'x':2}, y=3).x }} {{ namespace(a=1).b is defined }} {{ namespace() is mapping }} {{ namespace() is iterable }}
{{ namespace(a=1)['a'] }}
{% set ns = namespace(i=0) %}{% for x in l %}{% set ns.i = ns.i + x %}{% endfor %}{{ ns.i }}
{% set ns = {} %}{% set ns.x = 1 %}
{% set nope.x = 1 %}
{% set ns.x = 1 %}{{ ns.x }}
{% set a, b = 1, 2 %}{{ a }}{{ b }} {% set (c, d2) = [3, 4] %}{{ c }}{{ d2 }}
{% set a, b = 1 %}
{% set a, b = [1] %}
{% set a, b = [1,2,3] %}
{% set a, = [1] %}{{ a }}
{% set x %}block {{ n }}{% endset %}[{{ x }}]
{% set x | upper %}block{% endset %}{{ x }} {% set x | replace('b','c') | trim %} bb {% endset %}[{{ x }}]
{% set x = 1, 2 %}{{ x }}
{% if false %}{% set x = 1 %}{% endif %}{{ x }}{{ x is defined }}
{% for i in [1] %}{% set x = 5 %}{% endfor %}{{ x is defined }}
{% set x = 1 %}{% for i in [1,2] %}{{ x }}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}
{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}
{% for i in l %}{{ i }}{% else %}empty{% endfor %} {% for i in [] %}{{ i }}{% else %}empty{% endfor %}
{% for i in l if i > 1 %}{{ i }}:{{ loop.index }}/{{ loop.length }}{{ ',' if not loop.last }}{% endfor %}
{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}
{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}
{% for i in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}
{% for i in l %}{{ loop.cycle('a','b') }}{% endfor %}
{% for i in [1,1,2] %}{{ loop.changed(i) }}{% endfor %}
{% for i in l %}{% for j in 'ab' %}{{ loop.index }}{{ j }}{% endfor %}{{ loop.index }}{% endfor %}
{% for i in range(10) %}{% if i == 3 %}{% continue %}{% endif %}{% if i > 5 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% for i in l|select %}{{ loop.length }}{{ i }}{% endfor %}
{% for k in d %}{{ k }}{% endfor %} {% for c in 'aé世' %}{{ c }}.{% endfor %} {% for a, b in [(1,2),(3,4)] %}{{ a }}{{ b }}{% endfor %} {% for (a, b) in [[1,2]] %}{{ a }}{% endfor %} {% for a, (b, c) in [(1,(2,3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for i in 5 %}{% endfor %}
{% for a, b in [1] %}{% endfor %}
{% for i in none %}{% endfor %}
{% for i in undefinedvar %}x{% else %}none{% endfor %}
{% for loop in l %}{% endfor %}
{% for i in l %}{% set loop = 1 %}{% endfor %}
{% break %}
{% for item in [{'n':1,'c':[{'n':2,'c':[]},{'n':3,'c':[{'n':4}]}]}] recursive %}{{ item.n }}{{ loop.depth }}({% if item.c %}{{ loop(item.c) }}{% endif %}){% endfor %}
{% for x in l %}{{ loop(l) }}{% endfor %}
{{ loop is defined }} {% for i in l if loop is defined %}{% endfor %}
{% for i in l %}{{ loop }}{% endfor %}
{% if 1 %}a{% elif 2 %}b{% else %}c{% endif %}{% if 0 %}a{% elif 2 %}b{% else %}c{% endif %}{% if 0 %}a{% elif 0 %}b{% else %}c{% endif %}
{% macro m(a, b=2, c='x') %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, c=3) }}{{ m(b=5, a=4) }}{{ m() }}
{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1,2,3,x=4) }}{{ m() }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}
{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}
{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}body {{ n }}{% endcall %}
{% macro m(l) %}{% for x in l %}{{ caller(x) }}{% endfor %}{% endmacro %}{% call(x) m([1,2]) %}({{ x }}){% endcall %}
{% macro m() %}{{ caller is defined }}{% if caller %}{{ caller() }}{% endif %}{% endmacro %}{{ m() }}{% call m() %}z{% endcall %}
{% macro m() %}x{% endmacro %}{% call m() %}z{% endcall %}
{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}
{% macro m(x) %}{% set x = x + 1 %}{{ x }}{% endmacro %}{{ m(1) }}{{ x is defined }}
{% macro fact(k) %}{% if k <= 1 %}1{% else %}{{ k * fact(k-1)|int }}{% endif %}{% endmacro %}{{ fact(5) }}
{% macro m(x) %}{{ x }}{% endmacro %}{{ m }} {{ m.name }} {{ m.arguments }} {{ m.catch_kwargs }}{{ m.caller }}
{% macro m() %}{{ outer }}{% endmacro %}{% set outer = 1 %}{{ m() }}
{{ m() }}{% macro m() %}x{% endmacro %}
{% macro m() %}{{ ctxvar }}{% endmacro %}{{ m() }}{% set ctxvar = 1 %}{{ m() }}
{% for i in [1] %}{{ ctxvar }}{% endfor %}{% set ctxvar = 1 %}{{ ctxvar }}
{{ ctxvar }}{% set ctxvar = 1 %}{{ ctxvar }}
{% for i in [1] %}{{ ctxvar }}{% endfor %}{% if false %}{% set ctxvar = 1 %}{% endif %}{{ ctxvar }}
{% for i in [1,2] %}{% for j in [1] %}{{ ctxvar }}{% endfor %}{% set ctxvar = i %}{{ ctxvar }}{% endfor %}
{% set q = 1 %}{% for i in [1,2] %}{% for j in [1] %}{{ q }}{% endfor %}{% set q = 7 %}{{ q }}{% endfor %}{{ q }}
{% macro m() %}{% for i in [1] %}{{ ctxvar }}{% endfor %}{% set ctxvar = 2 %}{{ ctxvar }}{% endmacro %}{{ m() }}
{% with a=1, b=2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}
{% set a = 5 %}{% with a=1, b=a %}{{ a }}{{ b }}{% endwith %}{{ a }}
{% with %}{% set z = 1 %}{{ z }}{% endwith %}{{ z is defined }}
{% filter upper %}abc {{ s }}{% endfilter %} {% filter replace('a','b')|upper %}aa{% endfilter %}
{% generation %}gen {{ n }}{% set gg = 1 %}{% endgeneration %}{{ gg is defined }}
{% raw %}{{ raw }} {% x %}{# c #}{% endraw %}
a {#- comment -#} b {# x #}c
{% print 1, 'b' %}
{{ raise_exception('boom ' ~ n) }}
{{ strftime_now('%Y-%m-%d %H:%M:%S %B %b %A %a %j %p %I %y %%') }}
{{ strftime_now('%d %-d %-m') }}
{% set c = cycler('a','b','c') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{% set _ = c.reset() %}{{ c.next() }}
{% set j = joiner('|') %}{{ j() }}a{{ j() }}b{{ j() }}
{{ x y }}
{{ }}
{% %}
{{ 1 +  }}
{{ [1,,2] }}
{{ {'a' 1} }}
{% if %}x{% endif %}
{% for in l %}{% endfor %}
{% endfor %}
{% if 1 %}{% endfor %}{% endif %}
{% macro (a) %}{% endmacro %}
{% macro m(a=1, b) %}{% endmacro %}
{% set 1 = 2 %}
{% set true = 2 %}
{% set a.b.c = 2 %}
{{ 1 | nofilter }}
{% if false %}{{ 1 | nofilter }}{% endif %}ok
{% if false %}{% for i in [1] %}{{ 1 | nofilter }}{% endfor %}{% endif %}ok
{% if true %}{{ 1 | nofilter }}{% endif %}ok
{{ (1 | nofilter) if false else 'ok' }}
{% for i in [] %}{{ 1 | nofilter }}{% endfor %}ok
{% macro m() %}{{ 1|nofilter }}{% endmacro %}ok
{% if false %}{{ 1 is notest }}{% endif %}ok
{{ "\u12" }}
{{ a.b.c if a is defined else 'no a' }}
{{ {'items': 5}.items }} 
{{ {'items': 5}['items'] }} {{ {'get': 1}['get'] }} {{ d['items'] is defined }} {{ d['nokey'] is defined }}
{{ [1,2,3].0 }} {{ (1).real is defined }}
{{ s is not none and s|length > 3 }} {{ not s is none }} {{ 1 if 2 is none else 3 }}
{{ -l|first }} {{ -3|abs }} {{ 2*-1 }} {{ +5 }} {{ 1 - -1 }} {{ not not 1 }}
{{ l|first + 1 }} {{ 'a' ~ l|length ~ 'b' }} {{ 1 + 2 ~ 3 }} {{ 1 ~ 2 + 3 }} {{ 2 * 3 ~ 4 }}
{{ 1 == 1 and 2 == 2 }} {{ 1 in [1] == true }} {{ (1,2) + (3,) }} {{ 1,2 }} {{ [1, 2, ] }} {{ {'a': 1, } }} {{ (1, ) }}
{{ true and false or true }} {{ True }} {{ False }} {{ None }} {{ none }}
{{ 'a'.upper().lower().strip() }} {{ s.split(', ')[1] }} {{ s.split(',')|map('trim')|list }} {{ (s.split(',')[0] ~ 'x')|upper }}
{{ 'abc'[1] }} {{ 'abc'.0 if false }} {{ {'a':{'b':'c'}}.a.b }} {{ ['x'][0][0] }} {{ 'abc'|list }} {{ d|list }} {{ 'a-b'|list|join('+') }}
{{ l.0 }} {{ ms[0].role }} {{ ms[-1]['role'] }} {{ ms[1:]|map(attribute='role')|join }} {{ ms[0:1][0].content }} {{ ms|length }} {{ (ms|last).role }} {{ ms|first|attr('get') is defined }}
{{ big }} {{ big + 1 }} {{ big * 1.0 }} {{ big == 9007199254740992.0 }} {{ 2**62 }} {{ tiny }} {{ 1e22 }} {{ 123456789012345680.0 }} {{ 0.1 + 0.2 }}
{{ 3.0 == 3 }} {{ 3.0 is integer }} {{ 10 / 5 }} {{ 10 // 5.0 }} {{ 7 / 2 }} {{ 2.0 ** 0.5 }} {{ 5 % 2.5 }} {{ true + true }} {{ true * 3 }} {{ -true }}
{{ 1 if undefinedvar else 2 }} {{ undefinedvar or 'dflt' }} {{ undefinedvar and 1 }}
{{ no ~ '' }} {{ no or 'x' }} {{ no == false }} {{ zero == false }} {{ '' == false }} {{ [] == false }} {{ none in [none] }}
{{ {'a':1} == {'a':1.0} }} {{ {'a':1,'b':2} == {'b':2,'a':1} }} {{ [1,[2]] == [1,[2]] }} {{ {1:1}[1.0] }} {{ {true: 'x'}[1] }} {{ {1: 'a', 1.0: 'b', true: 'c'} }}
{{ {[1]: 2} }}
{{ {'a': 1}[[1]] }}
{{ [1] in d }}
{{ l < 5 }}
{{ none < 1 }}
{{ undefinedvar < 1 }}
{{ 'a' < 1 }}
{{ d < d }}
{{ s() }}
{{ s.upper(1) }}
{{ l.nomethod() }}
{{ d.nomethod() }}
{{ dict(a=1).a.b.c }}
{{ ' ' * 3 }}|{{ '\n' }}|
{{ "a" if 1 else "b" ~ "c" }} {{ ("a" if 0 else "b") ~ "c" }} {{ 1 if 1 if 0 else 1 }}
{{ l is string or l is mapping }} {{ l is iterable and l is not string }} {{ ms[0] is mapping }} {{ ms[0].role is string }} {{ s is string and s[0] == 'H' }}
{{ ms|map(attribute='content')|map('upper')|join(' ') }} {{ ms|selectattr('role', 'in', ['user'])|map(attribute='content')|list|tojson }} {{ ms|map('tojson')|join(';') }} {{ d.items()|map('first')|list }} {{ d|dictsort|map('join', '=')|join('&') }}
{%- set msgs = ms[1:] if ms[0].role == 'user' else ms -%} {{ msgs|length }} {%- for m in msgs -%} {{ m.role }} {%- endfor -%}
{{ u.encode('utf-8') if false }}{{ u.split() }} {{ u.find('世') }} {{ 'é' in u }} {{ u|tojson|length }} {{ u.replace('世', 'W') }} {{ u.startswith('Grü') }} {{ u|upper|lower == u|lower }} {{ u|capitalize }} {{ u|title }}
{{ lines|replace('\n','|') }} {{ lines.split('\n') }} {{ lines|indent(2) }} {{ lines|trim|length }} {{ lines.strip() }} {{ lines.rstrip('d') }} {{ lines.splitlines()|join('/') }}
{{ e.strip() }}|{{ e|trim }}|{{ e.split('x') }}|{{ e|default('d', true) }}|{{ e[0] is defined }}|{{ e[:1] }}|{{ e|first is defined }}|{{ e|length }}
{{ none.x is defined }} {{ none.foo }} {{ true.x is defined }} {{ 1.5.x is defined }}
{{ [1,2,3][1:][0] }} {{ (l|sort)[0] }} {{ l|sort|first }} {{ (d|items|list)[0][0] }} {{ ('a','b')[1] }} {{ l[l|length - 1] }} {{ l[-l|length] }} {{ l[true] }}
{{ 'abc'|select('in', 'bc')|join }} {{ 'hello'|unique|join }} {{ [3,1]|sort|map('string')|join('<') }} {{ [['b',1],['a',2]]|sort(attribute=0) }} {{ [['b',1],['a',2]]|sort(attribute='1', reverse=true) }} {{ [1,2,3]|map('multiply') is defined }}
{{ 1.5|string + 'x' }} {{ none|string }} {{ true|string|lower }} {{ [1]|string }} {{ l|string|length }} {{ 5|string|int + 1 }}
{% include 'x' %}
{% extends 'x' %}
{% import 'x' as y %}
{% do l.append(1) %}
{% trans %}x{% endtrans %}
{{ s|batch }}
{{ s|trim(1) }}
{{ s.strip(1) }}
{{ l|join(1) }} {{ l|join(none) }}
{{ l|first(1) }}
{{ s|upper(1) }}
{{ s|replace('a') }}
{{ l|tojson(nokw=1) }}
{{ namespace(1) }}
{{ dict(1) }}
{{ raise_exception() }}
{{ raise_exception(undefinedvar) }}
{{ strftime_now(1) }}
{{ loop.index }}
{% for x in l %}{{ loop.nope is defined }}{{ loop['index'] }}{% endfor %}
{% for x in l %}{% set ns2 = namespace(x=loop) %}{{ ns2.x.index }}{% endfor %}
{% set ns = namespace(f=none) %}{% for x in l %}{% if loop.first %}{% set ns.f = loop %}{% endif %}{% endfor %}{{ ns.f.index }}
{% for x in l %}{% if loop.index == 2 %}{{ loop.length }}{{ loop.last }}{{ loop.revindex }}{% endif %}{% endfor %}
{% for m in ms %}{{ loop.cycle('a', 'b', 'c') }}{{ m.role }}{% if loop.nextitem is defined and loop.nextitem.role == 'user' %}!{% endif %}{% endfor %}
{% for m in ms if m.role == 'user' %}{{ loop.index }}{{ m.content }}{% else %}none{% endfor %}
{% for m in ms if m.role == 'nobody' %}{{ m }}{% else %}none{% endfor %}
{% for k, v in d|dictsort %}{{ k }}{{ v }}{% endfor %} {% for k in d|sort %}{{ k }}{% endfor %} {% for k, v in {'x': 1}.items() %}{{ loop.index }}{{ k }}{{ v }}{% endfor %}
{% for i in range(3) -%} {{ i }} {%- endfor %}
{% set a = [] %}{% set a = a + [1] %}{% set a = a + [2] %}{{ a }}
{% set x = ms | selectattr('role', 'equalto', 'user') | list %}{{ x[0].content }}{{ x | length }}
{% set t2 = ns is defined %}{{ t2 }}
{% macro a() %}{% macro b() %}in{% endmacro %}{{ b() }}{% endmacro %}{{ a() }}{{ b is defined }}
{% macro a(x) %}{{ x() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a(b) }}
{% macro a() %}{{ kwargs.q }}{{ varargs|length }}{% endmacro %}{{ a(1, q=2) }}
{% macro a(caller=none) %}{{ caller }}{% endmacro %}{{ a() }}
{% macro a(caller) %}{{ caller() }}{% endmacro %}{% call a() %}x{% endcall %}
{% macro a(x) %}{{ x }}{% endmacro %}{{ a(x=1) }}{{ a(*[2]) }}{{ a(**{'x': 3}) }}
{% macro a(x, x) %}{% endmacro %}
{% macro dflt(x=[1,2], y={'a': 1}) %}{{ x[0] }}{{ y.a }}{% endmacro %}{{ dflt() }}
{{ (s ~ '')[:5] ~ '...' }} {{ s[:5] ~ '...' if s|length > 5 else s }}
{{ ''.join(ms|map(attribute='role')) }} {{ ','.join(d.keys()) }} {{ ' '.join(s.split()|reverse) }}
{{ ('a' in 'abc') ~ ('z' not in 'abc') }} {{ 'a' in ['a'] and 'b' in ['b'] }} {{ not 'a' in 'b' }}
{{ 1 if [] else 2 }} {{ 1 if {} else 2 }} {{ 1 if '' else 2 }} {{ 1 if 0.0 else 2 }} {{ 1 if ' ' else 2 }} {{ 1 if (0,) else 2 }} {{ 1 if range(0) else 2 }} {{ 1 if namespace() else 2 }} {{ 1 if d.items() else 2 }} {{ 1 if {}.items() else 2 }}
{{ "a%sb" % none }} {{ "%s" % undefinedvar }} {{ "%s" % [[1]] }} {{ "%5s|%-5s|" % ('é', 'é') }} {{ '%c' % 'a' if false }}
{{ l.__class__ }} {{ s.__len__ }}|{{ d.__class__ is defined }}
{{ l.__class__.__name__ }}
{{ ''.__class__.__mro__ }}
{{ 1_000 + 0 }} {{ 00 }}
{{ 007 }}
{{ 1.e5 }}
{{ 1..real }}
{{ .5 }}
{{ 5.real }}
{{ 'a' if }}
{{ not }}
{{ a[ }}
{{ f(1 2) }}
{{ f(a=1, 2) }}
{{ dict(a=1, a=2) }}
{{ x is }}
{{ x | }}
{{ x. }}
{{ x['a' }}
{{ l[1,2] }}
{{ d[1,2] is defined }}
{{ {(1,2): 'x'}[1,2] }}
{{ 'unclosed }}
{{ {# c #} }}
{% if x #}{% endif %}
{{ ms[0]|tojson }}{{ ms[0]|tojson(indent=1) }}
{{ 9223372036854775807 }} {{ -9223372036854775807 }}
{{ 'ß'|upper }} {{ 'ŉ'|upper }} {{ 'ΐ'|upper }} {{ 'ﬀ'|capitalize }} {{ 'ǅ'|lower }} {{ 'ǅ'|upper }} {{ 'Ⅷ'|lower }} {{ 'ⓐ'|upper }} {{ '𐐨'|upper }} {{ 'ꭰ'|upper }} {{ 'Ꭰ'|lower }} {{ 'ა'|upper }}
'''.strip("\n").split("\n")]

# Those of several lines, mostly about whitespace.
SNIPPETS += [
    '{% filter indent(2) %}a\nb{% endfilter %}',
    '{{ \'a\' \'b\' "c" }} {{ \'x\\ny\\t\\\\\\\'\\"\\x41\\u00e9\\101\' }} {{ \'\\q\' }} {{ \'a\\\nb\' }}',
    'a\n{% if true %}\nb\n{% endif %}\nc\n',
    '  {% if true %}\n  x\n  {% endif %}\ny',
    'a  {%- if true -%}  b  {%- endif -%}  c',
    'a\n  {%+ if true %}\nb\n  {%+ endif +%}\nc\n',
    '{%- if true +%}\n\nx\n{%- endif %}\n',
    '{{ 1 }}\n{{ 2 }}\n\n{{- 3 -}}\n\n  x',
    'x\n   {# comment #}\ny\n   {#- comment -#}\nz\n   {#+ c +#}\nw',
    'x {# c #}\ny',
    '{# c\nmulti #}\ny\n',
    '{% for i in [1,2] %}\n  item {{ i }}\n{% endfor %}\nend\n\n',
    '\n{% set x = 1 %}\n\n{% set y = 2 %}\n   {{ x }}{% if y %} {# c #} {% endif %}\n',
    '\t{% if 1 %}\tx\t{% endif %}\t\ny',
    'a\r\nb\rc\n{% if 1 %}\r\nd\r\n{% endif %}\r\n',
    '{% raw %}\n {{ x }}\n{% endraw %}\ny',
    '{% raw -%}\n {{ x }}\n {%- endraw %}\ny',
    '  {% raw %}  a  {% endraw %}  b',
    '{%- raw -%}  a  {%- endraw -%}  b',
    'x\n\n',
    'x\n',
    '\n',
    '',
    ' ',
    '{{ "a\nb" }}',
    '{{\n  1\n  +\n  2\n}}',
    '{% set x\n= 5 %}{{ x }}',
    '{{ x\n }}{{ nope.a.b }}',
    "{% for m in ms %}\n{%- if m.role == 'user' -%}\n  U: {{ m.content }}\n{% elif m.role == 'assistant' %}\n  A: {{ m.content -}}\n{% endif %}\n{% endfor %}\n.",
    '{%if 1%}tight{%endif%}{{1}}{%-if 1-%} t {%-endif-%} x',
    'a{{ \'{{\' }}b{{ \'%}\' }}c{{ "#}" }}{{ \'}}\' }}',
    '{ { } } {x} % } #} }} %}',
    "a {{- ' b ' -}} c",
    '{% macro m(a) %}\n  <{{ a }}>\n{% endmacro %}\n{{ m(1) }}\n{{- m(2) }}\n{% call m(3) %}{% endcall %}',
    '\xa0{% if 1 %}x{% endif %}\u2003{%- if 1 %}y{% endif %}',
    '{% if 1 %}\n    \n    a\n    {%- endif %}\nb',
    '{% for i in range(2) %}  \n {{ i }}\n{% endfor %}',
    'x{% if 1 %}\n\ny{% endif %}\n\nz',
    '{% set x %}\na\n{% endset %}\n[{{ x }}]',
    '{% filter trim %}\n\n  a\n{% endfilter %}\nb',
    '{# a #}{# b #}\n{#- c #} d',
    '{{ 1 }} {%- set x = 3 %} {{ x }}',
    '{% if 1 -%}\n   a\n{%- else -%}\n   b\n{%- endif %}',
    '{%- for x in l -%}{{ x }}{%- if not loop.last -%}, {% endif -%}{%- endfor -%}',
    '{% if true %}{# c #}\nx{% endif %}',
    '{% generation %}\na\n{% endgeneration %}\nb',
    '{%-\n if true\n-%} x {% endif %}',
]
