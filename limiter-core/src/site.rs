//! The rules of annotated functions, with their places in the source.

/// A rule of an annotated function, with its place in the source: see [`sites`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    rule: &'static RuleSite,
    function: &'static str,
}

impl Site {
    /// Returns the rule's name: the attribute's `name`, or else its key as written.
    #[must_use]
    pub fn rule(&self) -> &'static str {
        self.rule.name
    }

    /// Returns the key as written in the attribute, if it is a string; `None` for another expression.
    #[must_use]
    pub fn key(&self) -> Option<&'static str> {
        self.rule.key
    }

    /// Returns the limits as written in the attribute, such as `5/10s`. A limit of expressions is their source text. For
    /// `limit = configured` it is `configured` alone.
    #[must_use]
    pub fn limits(&self) -> &'static [&'static str] {
        self.rule.limits
    }

    /// The algorithm of limits that do not state their own, and its burst: 0 for an expression.
    pub(crate) fn algorithm_and_burst(&self) -> (&'static str, Option<u32>) {
        (self.rule.algorithm, self.rule.burst)
    }

    /// The cost to compare with configured limits: see [`RuleSite::cost`].
    pub(crate) fn cost(&self) -> Option<u32> {
        self.rule.cost
    }

    pub(crate) fn block(&self) -> Option<&'static str> {
        self.rule.block
    }

    /// Returns the path of the function, such as `shop::orders::find`, or `shop::orders::Orders::find` for a method.
    ///
    /// The path of a method is as rustc prints it, so that of a trait's method is
    /// `<shop::orders::Orders as shop::Find>::find`. The form may change with the compiler: use it for people alone.
    #[must_use]
    pub fn function(&self) -> &'static str {
        self.function
    }

    /// Returns the source file, relative to the directory in which the compiler ran, as [`file!`] does.
    #[must_use]
    pub fn file(&self) -> &'static str {
        self.rule.file
    }

    /// Returns the line of the attribute, from 1; of the first, if the function has several. If another macro generates
    /// the function, it is the line of that macro's call.
    #[must_use]
    pub fn line(&self) -> u32 {
        self.rule.line
    }
}

/// Returns the rules of all annotated functions of the program, one [`Site`] a rule, in the order of file, line and
/// function. The rules of one function are in the order of its attributes.
///
/// Each function registers itself before `main`, whether it is ever called or not. The instances of a generic function
/// are one site. The list needs the feature `sites`, which is a default.
///
/// An empty list means *unknown*, and never that there are none:
///
/// - The feature is off.
/// - The program runs under Miri, which runs no code before `main`.
/// - A WebAssembly host has not called the module's constructors.
/// - The functions are in a library that the program does not refer to, so it is not linked.
///
/// ```
/// # use limiter_core as rate_limited;
/// for site in rate_limited::sites() {
///     println!("{}:{}: {} of {}: {}", site.file(), site.line(), site.rule(), site.function(), site.limits().join(", "));
/// }
/// ```
#[must_use]
pub fn sites() -> Vec<Site> {
    let mut sites: Vec<Site> = registered().collect();
    sites.sort_by_key(|site| (site.file(), site.line(), site.function()));
    sites
}

/// The description of one rule of an annotated function, in a static inside the function.
#[derive(Debug, PartialEq, Eq)]
pub struct RuleSite {
    /// The rule's name.
    pub name: &'static str,
    /// The key as written, if it is a string.
    pub key: Option<&'static str>,
    /// The limits as written, or `configured`.
    pub limits: &'static [&'static str],
    /// The algorithm of limits that do not state their own.
    pub algorithm: &'static str,
    /// The burst. 0 for an expression.
    pub burst: Option<u32>,
    /// The cost, if it is a number, and if the attribute has no `burst`, which configured limits would use.
    pub cost: Option<u32>,
    /// The text of the block.
    pub block: Option<&'static str>,
    /// The module and the name of the function, without the type of a method.
    pub function: &'static str,
    /// The source file.
    pub file: &'static str,
    /// The line of the attribute.
    pub line: u32,
}

#[cfg(not(feature = "sites"))]
fn registered() -> impl Iterator<Item = Site> {
    std::iter::empty()
}

#[cfg(feature = "sites")]
fn registered() -> impl Iterator<Item = Site> {
    inventory::iter::<Registration>.into_iter().flat_map(|&Registration { rules, type_inside }| {
        rules.iter().map(move |rule| Site { rule, function: function_path(type_inside(), rule.function) })
    })
}

/// The rules of one annotated function, which are registered before `main`.
#[cfg(feature = "sites")]
#[derive(Debug)]
pub struct Registration {
    rules: &'static [RuleSite],
    /// Returns the name of a type inside the function.
    type_inside: fn() -> &'static str,
}

#[cfg(feature = "sites")]
impl Registration {
    /// Creates the registration of a function that contains a type of this name.
    #[must_use]
    pub const fn new(rules: &'static [RuleSite], type_inside: fn() -> &'static str) -> Self {
        Self { rules, type_inside }
    }
}

#[cfg(feature = "sites")]
inventory::collect!(Registration);

/// Returns the path of the function that contains a type of this name. It is that of the type, up to the function's
/// name. Unlike `module_path!`, it has the type of a method.
#[cfg(feature = "sites")]
fn function_path(type_inside: &'static str, module_and_name: &'static str) -> &'static str {
    let name = module_and_name.rsplit("::").next().unwrap_or_default();
    let end_of_name = |at: usize| type_inside.get(..at + "::".len() + name.len());
    type_inside.rfind(&format!("::{name}::")).and_then(end_of_name).unwrap_or(module_and_name)
}

/// Registers the rules of an annotated function for [`sites`]. It adds items to the function, and no statement.
#[cfg(feature = "sites")]
#[doc(hidden)]
#[macro_export]
macro_rules! __register_sites {
    ($rules:expr) => {
        $crate::private::inventory::submit! {
            $crate::private::Registration::new($rules, {
                enum Inside {}
                ::core::any::type_name::<Inside>
            })
        }
    };
}

/// Does nothing: there is no list of annotated functions without the feature `sites`.
#[cfg(not(feature = "sites"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __register_sites {
    ($rules:expr) => {};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "sites")]
    #[test]
    fn the_path_of_a_function_ends_with_its_name() {
        let cases = [
            ("app::find::_::__INVENTORY::Inside", "app::find", "app::find"),
            ("app::Orders<T>::find::{{closure}}::Inside", "app::find", "app::Orders<T>::find"),
            ("<app::Orders as app::Find>::find::Inside", "app::find", "<app::Orders as app::Find>::find"),
            ("app::a::a::Inside", "app::a", "app::a::a"),
            ("app::finder::find_all::Inside", "app::find", "app::find"),
            ("", "app::find", "app::find"),
        ];
        for (type_inside, module_and_name, expected) in cases {
            assert_eq!(function_path(type_inside, module_and_name), expected, "{type_inside}");
        }
    }

    /// The crate itself has no annotated function, and other crates' are not linked here.
    #[test]
    fn a_program_without_annotated_functions_has_no_sites() {
        assert_eq!(sites(), []);
    }
}
