"""What splitting means for each op: a factor rule, and how the op runs on a chunk. `registry` has them all."""

from stablehlo_mem.sharding_rules.registry import OP_RULES as OP_RULES
from stablehlo_mem.sharding_rules.registry import is_free as is_free
from stablehlo_mem.sharding_rules.registry import reduction_of as reduction_of
from stablehlo_mem.sharding_rules.registry import rule_book as rule_book
from stablehlo_mem.sharding_rules.registry import rule_of as rule_of
from stablehlo_mem.sharding_rules.rule_book import RuleBook as RuleBook
