use underpass_copy::Charset;
use underpass_copy::{Dereference, PreserveLevel, RemoveExisting};

use super::super::getopt::parse;
use super::*;

fn environment(called_as: CalledAs) -> CpEnvironment {
    CpEnvironment {
        called_as,
        charset: Charset::Ascii,
        order: ArgumentOrder::Permuted,
        backup_names: None,
        suffix: None,
        has_selinux: false,
    }
}

fn parsed(words: &str, called_as: CalledAs) -> Result<CopyCommand, String> {
    let words = words.split_whitespace().map(OsString::from);
    match parse(words, &environment(called_as), &mut |_| ()) {
        Ok(CpRequest::Copy(command)) => Ok(*command),
        Ok(other) => Err(format!("{other:?}")),
        Err(error) => Err(error.message.to_string_lossy().into_owned()),
    }
}

fn options(words: &str) -> CopyOptions {
    parsed(&format!("{words} a b"), CalledAs::Cp)
        .expect("sense")
        .options
}

fn fault(words: &str) -> String {
    parsed(&format!("{words} a b"), CalledAs::Cp).expect_err("nonsense")
}

#[test]
fn what_happens_to_existing_files() {
    let (asked, asked_older) = (
        OverwritePolicy::Ask(AskWhen::Always),
        OverwritePolicy::Ask(AskWhen::Older),
    );
    for (words, expected) in [
        ("", OverwritePolicy::Overwrite),
        ("-n", OverwritePolicy::Keep),
        ("-i", asked),
        ("-u", OverwritePolicy::UpdateOlder),
        ("-n -i", asked),
        ("-i -n", OverwritePolicy::Keep),
        ("-u -n", OverwritePolicy::Keep),
        ("-n -u", OverwritePolicy::Keep),
        ("-u -i", asked_older),
        ("-i -u", asked_older),
        ("-i -u -n", OverwritePolicy::Keep),
        ("-n -u -i", asked_older),
        ("-f -n", OverwritePolicy::Keep),
        ("-n -f", OverwritePolicy::Keep),
        ("--update", OverwritePolicy::UpdateOlder),
        ("--update=older", OverwritePolicy::UpdateOlder),
        ("--update=o", OverwritePolicy::UpdateOlder),
        ("--update=all", OverwritePolicy::Overwrite),
        ("--update=none", OverwritePolicy::Keep),
        ("--update=none-fail", OverwritePolicy::Fail),
        ("--update=none-", OverwritePolicy::Fail),
        ("-u --update=all", OverwritePolicy::Overwrite),
        ("--update=all -u", OverwritePolicy::UpdateOlder),
        ("--update=none --update=older", OverwritePolicy::UpdateOlder),
        ("-n --update=all", OverwritePolicy::Keep),
        ("-n --update=none-fail", OverwritePolicy::Keep),
        ("-i --update=none", OverwritePolicy::Keep),
        ("-i --update=none-fail", OverwritePolicy::Fail),
        ("-i --update=all", asked),
    ] {
        assert_eq!(options(words).overwrite, expected, "{words}");
    }
}

#[test]
fn which_links_are_followed() {
    for (words, expected) in [
        ("", Dereference::Default),
        ("-R", Dereference::Default),
        ("-P", Dereference::Never),
        ("-L", Dereference::Always),
        ("-H", Dereference::CommandLine),
        ("-H -L", Dereference::Always),
        ("-L -H", Dereference::CommandLine),
        ("-LP", Dereference::Never),
        ("-PL", Dereference::Always),
        ("-a", Dereference::Never),
        ("-aL", Dereference::Always),
        ("-La", Dereference::Never),
        ("-d", Dereference::Never),
        ("-dH", Dereference::CommandLine),
        ("--no-dereference --dereference", Dereference::Always),
    ] {
        assert_eq!(options(words).dereference, expected, "{words}");
    }
}

/// The levels of mode, ownership, timestamps, links, context, xattr.
#[test]
fn what_goes_along() {
    use PreserveLevel::{BestEffort as T, Never as N, Required as R, Unset as U, Warn as W};
    for (words, expected) in [
        ("", [U, U, U, U, U, U]),
        ("-p", [R, R, R, U, U, U]),
        ("--preserve", [R, R, R, U, U, U]),
        ("-d", [U, U, U, R, U, U]),
        ("-a", [R, R, R, R, T, T]),
        ("-dR --preserve=all", [R, R, R, R, W, W]),
        ("--preserve=mode", [R, U, U, U, U, U]),
        ("--preserve=m,l", [R, U, U, R, U, U]),
        ("--preserve=xattr", [U, U, U, U, U, R]),
        ("--preserve=xattr,all", [R, R, R, R, W, R]),
        ("--preserve=all,xattr", [R, R, R, R, W, R]),
        ("-a --preserve=xattr", [R, R, R, R, T, R]),
        ("--preserve=xattr -a", [R, R, R, R, T, R]),
        ("-a --no-preserve=xattr", [R, R, R, R, T, N]),
        ("-a --no-preserve=all", [N, N, N, N, N, N]),
        ("--no-preserve=all -a", [R, R, R, R, T, T]),
        ("-p --no-preserve=mode", [N, R, R, U, U, U]),
        ("--no-preserve=mode -p", [R, R, R, U, U, U]),
        ("--no-preserve=mode,ownership", [N, N, U, U, U, U]),
        ("--no-preserve=mode --preserve=mode", [R, U, U, U, U, U]),
        ("--preserve=mode --no-preserve=mode", [N, U, U, U, U, U]),
        ("--preserve=t --no-preserve=t,c", [U, U, N, U, N, U]),
        ("--pres=o --no-pres=o", [U, N, U, U, U, U]),
    ] {
        let preserve = options(words).preserve;
        let wishes = [
            preserve.mode,
            preserve.ownership,
            preserve.timestamps,
            preserve.links,
            preserve.context,
            preserve.xattr,
        ];
        assert_eq!(wishes, expected, "{words}");
    }
}

#[test]
fn what_becomes_of_old_files() {
    let simple = |suffix: &str| Backup::Simple(suffix.into());
    let existing = |suffix: &str| Backup::Existing(suffix.into());
    for (words, expected) in [
        ("", Backup::None),
        ("-b", existing("~")),
        ("--backup", existing("~")),
        ("--backup=none", Backup::None),
        ("--backup=off", Backup::None),
        ("--backup=simple", simple("~")),
        ("--backup=never", simple("~")),
        ("--backup=t", Backup::Numbered),
        ("--backup=nu", Backup::Numbered),
        ("--backup=nil", existing("~")),
        ("--backup=", existing("~")),
        ("--backup=simple -b", simple("~")),
        ("-b --backup=simple", simple("~")),
        ("-S .old", existing(".old")),
        ("-S.old --backup=simple", simple(".old")),
        ("--suffix=x/y -b", existing("~")),
        ("--suffix= -b", existing("~")),
        ("-b -S a -S b", existing("b")),
    ] {
        assert_eq!(options(words).backup, expected, "{words}");
    }
}

#[test]
fn the_environment_names_backups_where_nobody_else_does() {
    let environment = CpEnvironment {
        backup_names: Some("numbered".into()),
        suffix: Some(".bak".into()),
        ..environment(CalledAs::Cp)
    };
    let backup = |words: &str| {
        let words = words.split_whitespace().map(OsString::from);
        match parse(words, &environment, &mut |_| ()) {
            Ok(CpRequest::Copy(command)) => command.options.backup,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(backup("a b"), Backup::None);
    assert_eq!(backup("-b a b"), Backup::Numbered);
    assert_eq!(backup("--backup=simple a b"), Backup::Simple(".bak".into()));
    assert_eq!(
        backup("--backup=simple -Sx a b"),
        Backup::Simple("x".into())
    );
}

#[test]
fn what_is_removed() {
    for (words, expected) in [
        ("", RemoveExisting::Never),
        ("-f", RemoveExisting::IfUnwritable),
        ("--remove-destination", RemoveExisting::Always),
        ("-f --remove-destination", RemoveExisting::Always),
        ("--remove-destination -f", RemoveExisting::Always),
    ] {
        assert_eq!(options(words).remove_existing, expected, "{words}");
    }
}

#[test]
fn contradictions_are_reported() {
    for (words, expected) in [
        ("-ls", "cannot make both hard and symbolic links"),
        (
            "-bn",
            "--backup is mutually exclusive with -n or --update=none-fail",
        ),
        (
            "-b --update=none",
            "--backup is mutually exclusive with -n or --update=none-fail",
        ),
        (
            "-b --update=none-fail",
            "--backup is mutually exclusive with -n or --update=none-fail",
        ),
        (
            "--reflink --sparse=never",
            "--reflink can be used only with --sparse=auto",
        ),
        (
            "--reflink=always --sparse=always",
            "--reflink can be used only with --sparse=auto",
        ),
        ("-t d -t e", "multiple target directories specified"),
        (
            "-t d -T",
            "cannot combine --target-directory (-t) and --no-target-directory (-T)",
        ),
        ("-T c", "extra operand 'b'"),
        (
            "--parents -T",
            "with --parents, the destination must be a directory",
        ),
        (
            "--preserve=context",
            "cannot preserve security context without an SELinux-enabled kernel",
        ),
        (
            "--only clone --reflink=never",
            "--only=clone contradicts --reflink=never",
        ),
        (
            "--only sendfile --reflink",
            "--only=sendfile contradicts --reflink=always",
        ),
        (
            "--only copy_range --sparse=never",
            "--only=copy_range contradicts --sparse=never",
        ),
        (
            "--only splice --sparse=always",
            "--only=splice contradicts --sparse=always",
        ),
        ("-j x", "invalid number of jobs 'x': use 1 to 128"),
        ("-j 0", "invalid number of jobs '0': use 1 to 128"),
        ("-j 129", "invalid number of jobs '129': use 1 to 128"),
        (
            "--bwlimit=x",
            "invalid rate 'x': bytes a second, as in 50M or 1.5GiB",
        ),
    ] {
        assert_eq!(fault(words), expected, "{words}");
    }
    assert!(
        parsed("-bni a b", CalledAs::Cp).is_ok(),
        "-i is the last one"
    );
    assert!(parsed("--reflink=auto --sparse=never a b", CalledAs::Cp).is_ok());
}

#[test]
fn operands_are_counted() {
    for (words, expected) in [
        ("", "missing file operand"),
        ("-t d", "missing file operand"),
        ("a", "missing destination file operand after 'a'"),
        ("-T a", "missing destination file operand after 'a'"),
        ("-T a b c", "extra operand 'c'"),
    ] {
        assert_eq!(parsed(words, CalledAs::Cp).err().as_deref(), Some(expected));
    }
    let target = |words| parsed(words, CalledAs::Cp).map(|copying| copying.options.target);
    assert_eq!(target("a b c"), Ok(CopyTarget::Last));
    assert_eq!(target("-T a b"), Ok(CopyTarget::LastAsName));
    assert_eq!(target("-td a"), Ok(CopyTarget::Folder("d".into())));
    assert_eq!(target("a --target=d"), Ok(CopyTarget::Folder("d".into())));
}

#[test]
fn as_cp_nothing_goes_on_beside() {
    let jobs = |words, name| {
        parsed(words, name).map(|copying| copying.options.jobs.map(NonZeroUsize::get))
    };
    assert_eq!(jobs("a b", CalledAs::Cp), Ok(Some(1)));
    assert_eq!(jobs("a b", CalledAs::Underpass), Ok(None));
    assert_eq!(jobs("-j3 a b", CalledAs::Cp), Ok(Some(3)));
    assert_eq!(
        jobs("-j3 -i a b", CalledAs::Underpass),
        Ok(Some(1)),
        "questions are one by one"
    );
    let copying = |words, name| parsed(words, name).expect("sense");
    assert_eq!(copying("a b", CalledAs::Cp).progress, When::Never);
    assert_eq!(copying("a b", CalledAs::Underpass).progress, When::Auto);
    assert_eq!(copying("-g a b", CalledAs::Cp).progress, When::Always);
    assert_eq!(copying("-v a b", CalledAs::Cp).dialect, Dialect::Gnu);
    assert_eq!(
        copying("--atomic a b", CalledAs::Cp).dialect,
        Dialect::Underpass
    );
}

#[test]
fn what_is_shown() {
    for (words, expected) in [
        ("a b", OutputDetail::Nothing),
        ("-v a b", OutputDetail::Names),
        ("-v --debug a b", OutputDetail::Debug),
        ("--debug -v a b", OutputDetail::Debug),
        ("--explain a b", OutputDetail::Explain),
        ("--explain=files a b", OutputDetail::Explain),
        ("--explain --explain=summary a b", OutputDetail::Nothing),
        ("-v --explain=s a b", OutputDetail::Names),
        ("--json --explain -v a b", OutputDetail::Json),
    ] {
        let detail = parsed(words, CalledAs::Cp).map(|copying| copying.detail);
        assert_eq!(detail, Ok(expected), "{words}");
    }
}

#[test]
fn help_and_version_end_the_reading() {
    assert_eq!(
        parsed("--help --foo", CalledAs::Cp).err().as_deref(),
        Some("ShowHelp")
    );
    assert_eq!(
        parsed("a --version", CalledAs::Cp).err().as_deref(),
        Some("ShowVersion")
    );
    assert_eq!(fault("--foo --help"), "unrecognized option '--foo'");
}

#[test]
fn the_first_variable_that_is_set_names_the_locale() {
    let table: [(&[(&str, &str)], Charset); 7] = [
        (&[], Charset::Ascii),
        (&[("LANG", "C.UTF-8")], Charset::Utf8),
        (&[("LANG", "de_DE.utf8@euro")], Charset::Utf8),
        (&[("LANG", "C.UTF-8"), ("LC_CTYPE", "C")], Charset::Ascii),
        (&[("LANG", "C"), ("LC_ALL", "C.UTF-8")], Charset::Utf8),
        (&[("LANG", "C.UTF-8"), ("LC_ALL", "")], Charset::Utf8),
        (&[("LANG", "de_DE")], Charset::Ascii),
    ];
    for (variables, expected) in table {
        let found = charset(|name| {
            let mut variables = variables.iter();
            let (_, value) = variables.find(|(known, _)| *known == name)?;
            Some((*value).into())
        });
        assert_eq!(found, expected, "{variables:?}");
    }
}
