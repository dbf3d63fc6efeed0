r"""Answers, the true answer, and whether they mean the same: odd formats that models and data sets write."""

# ruff: noqa: E501

RIGHT = [
    # plain numbers, separators, signs
    (r"42", r"42"), (r"1,000", r"1000"), (r"12{,}345", r"12345"), (r"12,\!345", r"12345"), (r"1 000 000".replace(" ", ","), r"1000000"),
    (r"1000.0", r"1000"), (r".25", r"0.25"), (r"7.", r"7"), (r"25", r"025"), (r"-0", r"0"), (r"-0.0", r"0"), (r"- 7", r"-7"),
    (r"−7", r"-7"), (r"+7", r"7"), (r"-1,234.50", r"-1234.5"), (r"\$18.90", r"18.90"), (r"$8$", r"8"), (r"**8**", r"8"),
    # digits of other scripts, zero-width characters
    (r"１２３", r"123"), (r"٤٥", r"45"), (r"४२", r"42"), ("\u200b8", r"8"), ("8\u00a0cm", r"8"), (r"３．５", r"3.5"),
    # fractions, decimals, mixed numbers, percentages, scientific notation
    (r"\frac{1}{2}", r"1/2"), (r"0.5", r"\frac{1}{2}"), (r"\dfrac{3}{4}", r"\frac{3}{4}"), (r"\frac34", r"\frac{3}{4}"),
    (r"\frac{-5}{3}", r"-\frac{5}{3}"), (r"0.75", r"\frac{3}{4}"), (r"\frac{6}{8}", r"\frac{3}{4}"), (r"1\frac{1}{2}", r"\frac{3}{2}"),
    (r"1 1/2", r"1.5"), (r"2½", r"2.5"), (r"50\%", r"50\%"), (r"50\%", r"0.5"), (r"12.5%", r"12.5\%"), (r"\frac{1}{2}", r"50\%"),
    (r"1.5\times 10^{3}", r"1500"), (r"1.5 × 10³", r"1500"), (r"3e8", r"3\times10^8"), (r"3 million", r"3000000"), (r"10^{-2}", r"0.01"),
    (r"\frac{1}{\frac{2}{3}}", r"\frac{3}{2}"), (r"\frac{1}" "\n" r"{2}", r"\frac{1}{2}"),
    # units and degrees
    (r"10 \text{ cm}", r"10"), (r"10~\mathrm{cm}", r"10"), (r"15 degrees", r"15"), (r"30°", r"30"), (r"30", r"30^\circ"), (r"30^{\circ}", r"30"),
    (r"10 cm", r"10\text{ cm}"), (r"5 m^2", r"5\text{ square meters}"), (r"42 apples", r"42"),
    # roots, pi, powers, polynomials
    (r"\sqrt2", r"\sqrt{2}"), (r"\sqrt{12}", r"2\sqrt{3}"), (r"\frac{\sqrt3}2", r"\frac{\sqrt{3}}{2}"), (r"√8", r"2\sqrt{2}"), (r"4 \pi", r"4\pi"),
    (r"2π", r"2\pi"), (r"\pi/6", r"\frac{\pi}{6}"), (r"2\pi", r"6.2832"), (r"2^{10}", r"1024"), (r"(x+1)^2", r"x^2+2x+1"), (r"3+2x", r"2x+3"),
    (r"a(b+c)", r"ab+ac"), (r"xyz+1", r"1+xyz"),
    # tuples, intervals, sets, lists, matrices
    (r"(1, 2)", r"(1,2)"), (r"(3,\frac{\pi}{2})", r"\left( 3, \frac{\pi}{2} \right)"), (r"[0, 1)", r"[0,1)"), (r"(-\infty, 3)", r"(-\infty,3)"),
    (r"\{3,2,1\}", r"\{1,2,3\}"), (r"3 \text{ and } 5", r"3,5"), (r"5, 3", r"3,5"), (r"(0.5, 1)", r"(\frac12, 1)"), (r"x=1 \text{ or } x=2", r"1,2"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"), (r"\begin{bmatrix}1&2\end{bmatrix}", r"\begin{pmatrix}1&2\end{pmatrix}"),
    (r"(-\infty,3)", r"x<3"), (r"1 < x \leq 3", r"(1,3]"),
    # names, choices, text, assignments, prose
    (r"x=5", r"5"), (r"5", r"x=5"), (r"n = 8", r"8"), (r"3+5=8", r"8"), (r"B", r"\text{(B)}"), (r"A.", r"A"), (r"B. 30", r"B"), (r"Evelyn", r"\text{Evelyn}"),
    (r"-1\frac{1}{2}", r"-1.5"), (r"2\frac12", r"2.5"), (r"1.5\times10^{-3}", r"0.0015"), (r"\frac{\pi}{4}", r"0.7854"), (r"100^\circ\text{C}", r"100"), (r"£5", r"5"),
    (r"5\,000", r"5000"), (r"1 000 000", r"1000000"), (r"3+4i", r"4i+3"), (r"\pm 2", r"2,-2"), (r"5!", r"120"), (r"\binom{5}{2}", r"10"), (r"\log_2 8", r"3"), (r"0.\overline{3}", r"\frac13"),
    (r"x > 3", r"(3,\infty)"), (r"x\in[0,1)", r"[0,1)"), (r"75 percent", r"75%"), (r"f(x)=x^2", r"x^2"), (r"(-\infty,-2)\cup(2,\infty)", r"(-\infty, -2) \cup (2, \infty)"), (r"(1,2),(3,4)", r"(3,4),(1,2)"),
    (r"\sqrt[3]{8}", r"2"), (r"12\text{ m}^2", r"12"), (r"８＋２", r"10"), (r"\textbf{(D)}", r"D"), (r"\frac{-7}{-2}", r"3.5"),
    (r"Even", r"\text{even}"), (r"\mathbf{8}", r"8"), (r"\text{8}", r"8"), (r"the answer is 42", r"42"), (r"101_{2}", r"101_2"), (r"\boxed{8}", r"8"),
]  # fmt: skip
WRONG = [
    (r"43", r"42"), (r"42.004", r"42"), (r"4200", r"42"), (r"0.42", r"42"), (r"-42", r"42"), (r"", r"42"), (r"   ", r"42"),
    (r"123456789012345678901234567891", r"123456789012345678901234567890"), (r"0.1234569", r"0.1234567"), (r"\frac{1}{2^{98}}", r"\frac{1}{2^{99}}"),
    (r"(2,1)", r"(1,2)"), (r"(0,1)", r"[0,1)"), (r"[0,1]", r"[0,1)"), (r"\{1,2\}", r"\{1,2,3\}"), (r"1,2,3,4", r"1,2,3"), (r"2,2,3", r"2,3,3"),
    (r"12_5", r"12_7"), (r"4\sqrt(2)", r"4"), (r"1 + \frac{1}{\mathrm{e}}", r"1 - \frac{1}{\mathrm{e}}"), (r"3x + 4y + 14=0", r"3x-y+13=0"),
    (r"3.5", r"3,5"), (r"(1,2),(3,4)", r"(1,3),(2,4)"), (r"x>=3", r"x>3"), (r"2 or 3", r"2"), (r"5 dollars", r"5 cents"), (r"3.14", r"\pi"), (r"22/7", r"\pi"), (r"x=2", r"x=-2"),
    (r"1,2,3", r"123"), (r"\infty", r"-\infty"), (r"A and B", r"A"), (r"i", r"-i"), (r"2x", r"2y"),
    (r"x^2", r"x^3"), (r"2x+3", r"3x+2"), (r"10 km", r"10\text{ cm}"), (r"C", r"B"), (r"odd", r"even"), (r"None", r"8"), (r"[INVALID]", r"8"),
    (r"9^{9^{9}}", r"1"), (r"9**9**9", r"1"), (r"10^{10^{10}}", r"1"), (r"100!!!!", r"1"), (r"0.333", r"\frac{1}{3}"), (r"1,234", r"1.234"),
]  # fmt: skip
