//! What the admin protects: texts that almost name it.

use super::super::*;
use super::protected::by_admin;
use super::scene::*;

#[test]
fn what_was_replaced_since_it_began_is_protected_by_its_path_all_the_same() {
    let path: fn(&mut Protection) = |p| p.names = vec!["/srv/serve/run".into()];
    let of = |executable: &'static str| {
        by_admin(path, "run", move |p| {
            p.kin.executable = Some(executable.into());
        })
    };
    let expected = Some("the admin protects what is called /srv/serve/run".to_owned());
    assert_eq!(of("/srv/serve/run"), expected);
    assert_eq!(of("/srv/serve/run (deleted)"), expected);
    assert_eq!(of("/home/eve/run"), None);
}

#[test]
fn fewer_digits_of_a_containers_id_than_the_runtimes_print_are_none_of_it() {
    let of = |digits: fn(&mut Protection)| {
        by_admin(digits, "python", |p| {
            p.container = Reading::Value(Some(container('a', "x", None)));
        })
    };
    let expected = Some("the admin protects container aaaaaaaaaaaa".to_owned());
    assert_eq!(of(|p| p.containers = vec!["a".repeat(12)]), expected);
    assert_eq!(of(|p| p.containers = vec!["a".repeat(11)]), None);
}
