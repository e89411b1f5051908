//! What of a model's name may be told: the words that makers of GPUs use. A driver and a
//! list of names can hold any text, and somebody's name may be in it.

use super::word::LEFT_OUT;

/// So many words has a name that is told; the longest known has nine.
const MOST_WORDS: usize = 12;

/// So long is a word with digits, in bytes: `A100-SXM4-40GB-LS`.
const LONGEST_WORD: usize = 20;

/// So many digits in a row has a number of a model; serial numbers have more.
const MOST_DIGITS: usize = 5;

/// So many hexadecimal digits alone may be the beginning of a UUID.
const LONGEST_HEX: usize = 7;

/// What stands in names of models without a digit: makers, families, chips and kinds,
/// as NVML, libdrm's `amdgpu.ids` and `pci.ids` have them.
const WORDS: [&str; 73] = [
    "ada",
    "alchemist",
    "amd",
    "ampere",
    "apple",
    "arc",
    "ati",
    "battlemage",
    "blackwell",
    "center",
    "corporation",
    "data",
    "design",
    "desktop",
    "edition",
    "flex",
    "fury",
    "geforce",
    "generation",
    "gpu",
    "graphics",
    "gre",
    "grid",
    "gt",
    "gtx",
    "gx",
    "hd",
    "instinct",
    "integrated",
    "intel",
    "iris",
    "laptop",
    "le",
    "max",
    "max-q",
    "mig",
    "mobile",
    "mx",
    "mxm",
    "navi",
    "nvidia",
    "nvl",
    "oem",
    "pcie",
    "plus",
    "pro",
    "quadro",
    "radeon",
    "raphael",
    "rembrandt",
    "renoir",
    "rtx",
    "rx",
    "series",
    "server",
    "spark",
    "super",
    "superchip",
    "sxm",
    "tesla",
    "ti",
    "titan",
    "uhd",
    "ultra",
    "vega",
    "vii",
    "with",
    "workstation",
    "xe",
    "xl",
    "xp",
    "xt",
    "xtx",
];

/// The name with what is no word of a model left out.
pub(super) fn told(text: &str) -> String {
    let mut words = text.split_whitespace();
    let mut told: Vec<&str> = words
        .by_ref()
        .take(MOST_WORDS)
        .map(|word| if is_told(word) { word } else { LEFT_OUT })
        .collect();
    told.extend(words.next().map(|_| LEFT_OUT));
    told.join(" ")
}

/// Whether all that a word is made of is a model's: `HBM3`, `Arc(TM)`, `[Radeon`,
/// `XT/7900`, `1002:744c`.
fn is_told(word: &str) -> bool {
    if is_pci(word) {
        return true;
    }
    let plain = word.replace("(R)", "").replace("(TM)", "");
    let plain = plain.trim_matches(['(', ')', '[', ']']);
    plain.split('/').all(is_of_a_model)
}

fn is_of_a_model(word: &str) -> bool {
    let is_known = || WORDS.iter().any(|it| word.eq_ignore_ascii_case(it));
    is_known() || is_numbered(word)
}

/// A word with a number in it, as only models have: `A100-SXM4-40GB`, `4090`, `7900M`.
fn is_numbered(word: &str) -> bool {
    let begins = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let mut runs = word.split(|c: char| !c.is_ascii_digit());
    let is_hex = word.bytes().all(|it| it.is_ascii_hexdigit());
    word.len() <= LONGEST_WORD
        && word.starts_with(begins)
        && word.chars().all(is_plain)
        && word.contains(|c: char| c.is_ascii_digit())
        && runs.all(|run| run.len() <= MOST_DIGITS)
        && !(is_hex && word.len() > LONGEST_HEX)
        // An address may be written with hyphens.
        && (!word.contains('-') || word.contains(|c: char| c.is_ascii_uppercase()))
}

/// The numbers of maker and device, as a card without a name is called.
fn is_pci(word: &str) -> bool {
    let is_number = |it: &str| it.len() == 4 && it.bytes().all(|it| it.is_ascii_hexdigit());
    let numbers = word.split_once(':');
    numbers.is_some_and(|(maker, device)| is_number(maker) && is_number(device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_told_as_its_maker_calls_it() {
        for name in [
            "NVIDIA H100 80GB HBM3",
            "NVIDIA A100-SXM4-40GB",
            "Tesla V100-SXM2-32GB-LS",
            "NVIDIA GeForce RTX 4090 Laptop GPU",
            "GeForce RTX 2080 SUPER",
            "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
            "Quadro RTX 6000/8000",
            "AMD Radeon RX 7900 XT/7900 XTX/7900M",
            "AMD Instinct MI300X",
            "DG2 [Arc A770]",
            "Intel(R) Arc(TM) A770 Graphics",
            "AMD 1002:744c",
        ] {
            assert_eq!(told(name), name);
        }
    }

    #[test]
    fn what_is_no_word_of_a_model_is_left_out() {
        for (name, expected) in [
            (
                "NVIDIA secretname /home/ann GPU-secret-uuid",
                "NVIDIA … … …",
            ),
            ("H100 GPU-9e1c0de5-aaaa-bbbb-cccc-0123456789ab", "H100 …"),
            ("H100 9e1c0de5 1652823000001", "H100 … …"),
            ("H100 10.0.0.5 192-168-17-42 fe80::1", "H100 … … …"),
            ("H100 ann@example.org H100@8", "H100 … …"),
            ("H100/home/ann box07", "… …"),
            ("panfrost ff9a0000.gpu", "… …"),
            ("H100\u{1b}[2J", "…"),
            ("", ""),
        ] {
            assert_eq!(told(name), expected, "{name}");
        }
    }

    #[test]
    fn the_list_has_its_order() {
        assert!(WORDS.is_sorted());
    }

    #[test]
    fn a_name_has_so_many_words_at_most() {
        let expected = format!("{}…", "H100 ".repeat(MOST_WORDS));
        assert_eq!(told(&"H100 ".repeat(MOST_WORDS + 9)), expected);
    }
}
