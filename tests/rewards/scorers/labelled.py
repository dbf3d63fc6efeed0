r"""Responses, ground truths and labels for every scorer: (response, truth, right) or with options of the call."""

# ruff: noqa: E501

from __future__ import annotations

LONG = "We check the computation once more and find nothing to change. " * 60
SPAM = " ".join(f"\\boxed{{{n}}}" for n in range(1, 31))

GSM8K = [
    ("so 72 in all.\n#### 72", "72", True), ("#### 73", "72", False), ("#### 72.", "72", True), ("#### $72", "72", True),
    ("####72", "72", True), ("#### 1,234", "1234", True), ("#### 1,234", "1,234", True), ("#### -5", "-5", True), ("#### −5", "-5", True),
    ("#### - 5", "-5", True), ("#### 72\nWait.\n#### 73", "72", False), ("#### 71\nWait.\n#### 72", "72", True), ("#### 72 apples", "72", True),
    ("#### 72.0", "72", True), ("#### 72", 72, True), ("#### 72", 72.0, True), ("#### 72", ["72"], True), ("#### 72", '["72"]', True),
    ("#### ７２", "72", True), ("#### ٧٢", "72", True), ("The answer is 72", "72", False), ("", "72", False), ("#### 72\n" + LONG, "72", True),
    (LONG + "\n#### 72", "72", True), ("#### .", "72", False), ("#### ,,", "", False), ("#### 3/4", "3/4", True), ("#### 3/4", "0.75", True),
    ("#### \\boxed{72}", "72", True), ("#### 10, 20", "1020", False), ("#### 50%", "50", True), ("#### 1e3", "1000", True), ("#### +5", "5", True),
    ("#### 72\n####", "72", True), ("x#### 72y", "72", True), ("#### 0", "0", True), ("#### 00", "0", True), ("#### 7.25", "7.25", True),
    ("<think>#### 5</think>\n#### 6", "6", True), ("#### 72", "5*8=40\n#### 72", True), ("####\x0072", "72", True), ("#### seventy", "72", False),
]  # fmt: skip
GSM8K_FLEXIBLE = [
    ("The answer is 72.", "72", True), ("that makes 72 apples", "72", True), ("in all 1,234 clips", "1234", True), ("\\boxed{72} after 3 steps", "72", True),
    ("3 apples and 4 pears make 7", "7", True), ("no digits", "72", False), ("from 3-5 we get", "-5", False), ("x=72, ", "72", True), ("hmm...", "72", False),
]  # fmt: skip
BOXED = [
    (r"First \boxed{7}, then corrected: \boxed{8}", "8", True), (r"\boxed{\boxed{8}}", "8", True), (r"The answer is $\boxed 8$", "8", True),
    (r"The answer is \boxed {8}", "8", True), (r"\boxed{8}. I used \boxed as asked.", "8", True), (r"Put it in \boxed{}", "8", False), (r"\boxed{}", "", False),
    (r"\boxed{$8$}", "8", True), (r"\boxed{\text{8}}", "8", True), (r"\boxed{2} and \boxed{3}", "2,3", True), (r"\boxed{\{2,3\}}", r"\{2,3\}", True),
    (LONG + r"\boxed{8}", "8", True), (r"\boxed{8} " + LONG, "8", True), (SPAM, "30", False), (r"put your final answer within \boxed{}.", "8", False),
    ("so\r\n\\boxed{8}\r\n", "8", True), ("\\boxed{\u200b8}", "8", True), ("答案是：\\boxed{8}。", "8", True), (r"\boxed{8", "8", False), (r"<think>\boxed{7}</think> \boxed{8}", "8", True),
    (r"<think>\boxed{8}</think>", "8", True), (r"\boxed{8} \boxed{8}", "8", True), ("I cannot tell", "None", False), (r"\boxed{8}", ["7", "8"], True),
    (r"\boxed{8}", 8, True), (r"\boxed{8}", 8.0, True), (r"\boxed{8}", '["8"]', True), (r"\boxed{[0,1)}", "[0,1)", True), (r"\boxed{8}" + "}" * 50, "8", True),
    (r"\boxed{" + "{" * 2000 + "8" + "}" * 2000 + "}", "9", False), (r"\boxed{8}" + "\x00", "8", True),
]  # fmt: skip
STATED = [
    ("The answer is 42", "42", True), ("3 + 4 = 7", "7", True), ("The final answer is 7. I used 3 steps.", "7", True), ("$x=1$ or $x=2$", "1,2", True),
    ("So it is $\\frac{1}{2}$.", "0.5", True), ("<answer>8</answer>", "8", True), ("no maths here", "2", False), ("", "42", False),
]  # fmt: skip
ANSWER_LINES = [
    ("ANSWER:42", "42", True), ("The final answer: 42", "42", True), ("Answer: $42$", "42", True), ("Answer: \\boxed{42}", "42", True), ("Answer: 42.", "42", True),
    ("**Answer:** 42", "42", True), ("**Answer: 42**", "42", True), ("Answer: 42 apples", "42", True), ("Answer:\n42", "42", True), ("Answer: 41\nAnswer: 42", "42", True),
    ("Answer: 42\nAnswer: 41", "42", False), ("Answer: -1,234", "-1234", True), ("Answer: 1,234.5", "1234.5", True), ("Answer: x = 42", "42", True), ("Answer: a 42", "42", True),
    ("Answer: 42 ways", "42", True), ("Answer: 42\n" + LONG[:400], "42", True), ("Answer: [INVALID]", "42", False), ("Answer: ", "42", False), ("no idea", "42", False),
    ("nothing", "[INVALID]", False), ("Answer: 42", 42, True), ("Answer: 42", ["42"], True), ("\\boxed{25}", "025", True), ("\\boxed{1,000}", "1000", True),
    ("\\boxed{204}" + "." * 95, "204", True), ("\\boxed{" + "1" * 120 + "}", "1" * 120, True), ("Answer: \\text{Monday}", "Monday", True), ("Answer: \\frac{1}\n{2}", "\\frac{1}{2}", True),
    ("Answer: \\dfrac12", "\\frac{1}{2}", True), ("Answer: 336", "336^\\circ", True), ("<think>Answer: 1</think>Answer: 2", "2", True), ("Answer: ７", "7", True), ("Answer: 7 or 8", "7", False),
]  # fmt: skip
PRIME = [
    ("The answer is 42", "42", True), ("The answer is 42.", "42", True), ("42 is the answer", "42", True), ("So x + y = 42", "42", True), ("we get 42", "42", True),
    ("The roots are 3 and 5", "3,5", True), ("The answer is 42. This completes the proof", "42", True), ("42", "42", True), ("The answer is yes", "yes", True),
    ("The answer is 4200", "42", False), ("The answer is 0.42", "42", False), ("The answer is 42.004", "42", False), ("The answer is $2\\pi$", "6.2832", True),
    ("\\boxed{\\frac{\\pi}{2}}", "\\frac{1}{2}\\pi", True), ("\\boxed{a(b+c)}", "ab+ac", True), ("\\boxed{3 million}", "3000000", True), ("\\boxed{$5}", "5", True),
    ("\\boxed{12_5}", "12_5", True), ("\\boxed{12_5}", "12_7", False), ("\\boxed{len('abcdefg')+0\\pi}", "7", False), ("\\boxed{[len('a'), 2]}", "[1, 2]", False),
    ("", "42", False), ("The answer is 42", 42, True), ("The answer is 42", ["42"], True), ("Step 2: \\boxed{43}", "42", False), ("\\boxed{9^{9^{9}}}", "1", False),
    ("\\boxed{__import__('os').system('true')}", "0", False), ("\\boxed{−7}", "-7", True), ("\\boxed{30°}", "30", True), ("\\boxed{\\{3,2,1\\}}", "\\{1,2,3\\}", True),
    ("The answer is (1,2)", "(1,2)", True),
]  # fmt: skip
R1V = [
    ("<think>a</think><answer>5</answer>", "5", True), ("<think>a</think>\n\n<answer>5</answer>", "5", True), ("<think>a</think> so <answer>5</answer>", "5", True),
    ("<think>a</think><answer>5</answer>\n", "5", True), ("<think>a</think><answer>\n5\n</answer>", "5", True), ("<answer>4</answer><answer>5</answer>", "5", True),
    ("5", "5", True), ("It is 5", "5", True), ("<ANSWER>5</ANSWER>", "5", True), ("<answer>\\boxed{5}</answer>", "5", True), ("<think>a</think><answer></answer>", "5", False),
    ("", "5", False), ("<answer>5</answer>", 5, True), ("<answer>6</answer>", "5", False), ("<answer>5</answer>", " 5 ", True), ("<answer>5</answer>", "<answer> 5 </answer>", True),
    ("<answer>3+5=8</answer>", "8", True), ("<answer>0.5</answer>", "1/2", True), ("<answer>５</answer>", "5", True), ("<answer>−5</answer>", "-5", True), ("<answer>5 cubes</answer>", "5", True),
    ("<answer>1,000</answer>", "1000", True), ("<answer>(1,2)</answer>", "(2,1)", False), ("<answer>B</answer>", "\\text{(B)}", True), ("<answer>50\\%</answer>", "0.5", True),
    ("<answer>30°</answer>", "30", True), ("<answer>\\{3,1\\}</answer>", "\\{1,3\\}", True), ("<answer>[0,1)</answer>", "[0, 1)", True), ("<answer>yes</answer>", "Yes", True),
    ("<think><answer>4</answer></think><answer>5</answer>", "5", True), ("<answer>5</answer>", ["4", "5"], True), ("<answer>" * 5000, "5", False), ("</answer>" * 5000, "5", False),
]  # fmt: skip
SEARCH = [
    ("Paris", ["Paris"], True), ("paris", ["Paris"], True), ("the Beatles", ["Beatles"], True), ("U.S.", ["US"], True), ("London", ["Paris"], False), ("NYC", ["New York City", "NYC"], True),
    ("Paris", "Paris", True), ("  new   york ", ["New York"], True), ("New-York", ["New York"], True), ("1,000", ["1000"], True), ("1.5", ["15"], False), ("Beyonce", ["Beyoncé"], True),
    ("It is Paris", ["Paris"], False), ("", ["Paris"], False), ("...", [""], False), ("Paris", [], False), ("\nParis\n", ["Paris"], True), ("Schindlers List", ["Schindler's List"], True),
    ("“Paris”", ["Paris"], True), ("Paris.", ["Paris"], True), ("1984", [1984], True), ("１９８４", ["1984"], True), ("3.0", ["3"], True), ("straße", ["STRASSE"], True), ("an apple", ["apple"], True),
    ("a", ["a"], True), ("B", ["a"], False), ("Obama", ["Barack Obama"], False), ("co-operate", ["cooperate"], True), ("rock/pop", ["rock pop"], True), ("Paris", ["Paris, France"], False), ("東京", ["東京"], True),
]  # fmt: skip
TEN = ["dog"] * 9 + ["cat"]
VQA = [
    ("dog", TEN, 1.0), ("Dog", TEN, 1.0), ("a dog", TEN, 1.0), ("the dog.", TEN, 1.0), ("dog\n", TEN, 1.0), ("bird", TEN, 0.0), ("", TEN, 0.0), ("cat", TEN, 0.3),
    ("cat", ["cat"] * 2 + ["dog"] * 8, 0.6), ("cat", ["cat"] * 3 + ["dog"] * 7, 0.9), ("cat", ["cat"] * 4 + ["dog"] * 6, 1.0), ("Yes", ["yes"] * 10, 1.0), ("the dog", ["dog"] * 10, 1.0),
    ("two", ["2"] * 9 + ["3"], 1.0), ("none", ["0"] * 9 + ["1"], 1.0), ("3.5", ["3.5"] * 9 + ["4"], 1.0), ("1,000", ["1000"] * 9 + ["1"], 1.0), ("dont know", ["don't know"] * 9 + ["yes"], 1.0),
    ("red/white", ["red white"] * 9 + ["red"], 1.0), ("２", ["2"] * 10, 1.0), ("<answer>dog</answer>", TEN, 1.0), ("<think>cat?</think>dog", TEN, 1.0), ("\\boxed{dog}", TEN, 1.0), ("dog", "dog", 1.0),
    ("dog", ["dog"], 1.0), ("Dog!", "dog", 1.0), ("hot-dog", "hot dog", 1.0), ("dog cat", TEN, 0.0), ("dog " * 200, TEN, 0.0), ("dog\tcat", ["dog cat"] * 10, 1.0), ("wont", ["won't"] * 10, 1.0), ("3", [3], 1.0),
]  # fmt: skip
ANDROID = [
    ("0", "0", True), ("1", "1", True), ("0", "1", False), (" 1 ", "1", True), ("2\n", "2", True), ("The answer is 1", "1", True), ("I choose option 2", "2", True), ("10", "1", False), ("12", "2", False), ("3", "1", False),
    ("There are 3 numbers; I pick 2", "2", True), ("left=0, middle=1, right=2 -> 2", "2", True), ("1.0", "1", True), ("", "2", False), ("", "", False), ("1", 1, True), ("１", "1", True), ("١", "1", True),
    ("<think>0 is smaller than 2</think>2", "2", True), ("\\boxed{1}", "1", True), ('{"action": 2}', "2", True), ("12", "12", True), ("01", "1", True), ("In 2024 I pick 1", "1", True), ("(0)", "0", True), ('"1"', "1", True),
    ("Answer:1", "1", True), ("abc", "0", False), ("#2", "2", True), (LONG + "2", "2", True), ("tap(540, 1200)", "1", False), ("1️⃣", "1", True), ("back", "BACK", True), ("home", "back", False),
    ("Score: 1.0", "1", False), ("I choose 2. Score: 1.0", "1", False), ("I choose 2. Score: 1.0", "2", True), ("I pick 1.", "1", True), ("-1", "1", False), ("1.5", "1.5", True), ("<answer>2.0</answer>", "2", True),
]  # fmt: skip
