(* Theorem (b): the tiled forward pass computes standard attention.

   Q, K, V are matrices of reals; query i sees key j where sees i j is true; scores
   are scale * (q_i . k_j).  A pass visits pairs of blocks (query rows, key rows) in
   any order.  Each visit updates the rows of its query block by
     FlashAttention-1's update, which keeps O normalised, or
     FlashAttention-2's, which divides by l once, at the end.
   If the key blocks that a row meets hold every key it sees once (in any order, with
   fully masked blocks left out or not), then for that row
     O = softmax attention, 0 if it sees no key;
     exp LSE = the sum of exponentials (LSE = m + log l).
   fa1_blocks and fa2_blocks say it for either loop nest and any blocks; flash1_forward
   and flash2_forward for the printed nests with tiles of br and bc rows, ragged last
   tiles included.  The mask is any; with skip, fully masked blocks are left out, as
   causal and block-sparse kernels do.

   Source: Dao et al. 2022 (arXiv 2205.14135), Algorithm 1 and Theorem 1; Dao 2023
   (arXiv 2307.08691), Algorithm 1. *)
From Coq Require Import Reals Lra List Permutation FunctionalExtensionality Arith Lia.
From iosim Require Import Tiles Lists OnlineSoftmax.
Import ListNotations.
Open Scope R_scope.

(* The two updates *)

(* FA2: m_new = max (m, rowmax S);  l and O rescaled, then the block added. *)
Definition fa2_update (s : state) (ks : list key) : state :=
  match s, max_score ks with
  | _, None => s
  | None, Some mb => Some (state_at mb ks)
  | Some (m, l, o), Some mb =>
      let m' := Rmax m mb in
      Some (m', exp (m - m') * l + wsum m' (fun _ => 1) ks,
            fun c => exp (m - m') * o c + wsum m' (fun k => snd k c) ks)
  end.

(* FA1: the block's own mb, lb and P V, merged; O is divided by the new l. *)
Definition fa1_update (s : state) (ks : list key) : state :=
  match max_score ks with
  | None => s
  | Some mb =>
      let lb := wsum mb (fun _ => 1) ks in
      let pv := fun c => wsum mb (fun k => snd k c) ks in
      match s with
      | None => Some (mb, lb, fun c => / lb * pv c)
      | Some (m, l, o) =>
          let m' := Rmax m mb in
          let l' := exp (m - m') * l + exp (mb - m') * lb in
          Some (m', l', fun c => / l' * (l * exp (m - m') * o c + exp (mb - m') * pv c))
      end
  end.

(* What FA1 keeps: O divided by l. *)
Definition normalise (s : state) : state :=
  option_map (fun '(m, l, o) => (m, l, fun c : nat => / l * o c)) s.

Lemma fa2_update_direct a b : fa2_update (direct a) b = direct (a ++ b).
Proof.
  rewrite direct_app. unfold fa2_update, direct.
  destruct (max_score a) as [ma |], (max_score b) as [mb |]; cbn; trivial.
  apply state_eq; intros; trivial;
    now rewrite (wsum_shift mb (Rmax ma mb) _ b).
Qed.

Lemma fa1_update_direct a b : fa1_update (normalise (direct a)) b = normalise (direct (a ++ b)).
Proof.
  rewrite direct_app. destruct (direct b) as [[[mb lb] ob] |] eqn:Eb.
  - assert (E : max_score b = Some mb /\ lb = wsum mb (fun _ => 1) b /\
                ob = fun c => wsum mb (fun k => snd k c) b).
    { unfold direct in Eb. destruct (max_score b); cbn in Eb; [ | discriminate ].
      injection Eb as <- <- <-. auto. }
    destruct E as (E & -> & ->). unfold fa1_update. rewrite E.
    destruct (direct a) as [[[ma la] oa] |] eqn:Ea; cbn; [ | reflexivity ].
    apply state_eq; trivial. intros c. f_equal. f_equal.
    destruct (direct_Some a ma la oa Ea) as (Hl & _). field. lra.
  - unfold fa1_update. rewrite merge_None_r.
    unfold direct in Eb. destruct (max_score b); [ discriminate | reflexivity ].
Qed.

(* Folding the blocks of one row *)

Lemma fa2_fold blocks : forall a,
  fold_left fa2_update blocks (direct a) = direct (a ++ concat blocks).
Proof.
  induction blocks as [| b bs IH]; intros a; cbn; [ now rewrite app_nil_r | ].
  now rewrite fa2_update_direct, IH, app_assoc.
Qed.

Lemma fa1_fold blocks : forall a,
  fold_left fa1_update blocks (normalise (direct a)) = normalise (direct (a ++ concat blocks)).
Proof.
  induction blocks as [| b bs IH]; intros a; cbn; [ now rewrite app_nil_r | ].
  now rewrite fa1_update_direct, IH, app_assoc.
Qed.

(* Keys that are not visible count for nothing. *)
Lemma direct_visible ks : direct (filter visible ks) = direct ks.
Proof.
  induction ks as [| k ks IH]; [ reflexivity | ].
  rewrite direct_cons, <- IH. cbn. destruct k as [[s |] v]; cbn.
  - now rewrite direct_cons.
  - reflexivity.
Qed.

Section Attention.
Variables (nk d : nat) (Q K V : nat -> vec) (scale : R) (sees : nat -> nat -> bool).

Fixpoint dot (n : nat) (x y : vec) : R :=
  match n with 0%nat => 0 | S n => dot n x y + x n * y n end.

Definition score (i j : nat) : R := scale * dot d (Q i) (K j).
Definition key_of (i j : nat) : key := (if sees i j then Some (score i j) else None, V j).

(* Standard attention, row i, column c: sums over the keys it sees. *)
Fixpoint rsum (n : nat) (f : nat -> R) : R :=
  match n with 0%nat => 0 | S n => rsum n f + f n end.
Definition masked_exp (i j : nat) : R := if sees i j then exp (score i j) else 0.
Definition sum_exp (i : nat) : R := rsum nk (masked_exp i).
Definition standard_attention (i c : nat) : R :=
  rsum nk (fun j => masked_exp i j / sum_exp i * V j c).

(* A pass: the state of every row, updated visit by visit. *)
Definition visit := (list nat * list nat)%type.
Definition apply_visit (update : state -> list key -> state)
    (st : nat -> state) (v : visit) : nat -> state :=
  fun i => if in_dec Nat.eq_dec i (fst v)
           then update (st i) (map (key_of i) (snd v)) else st i.
Definition pass (update : state -> list key -> state) (vs : list visit) : nat -> state :=
  fold_left (apply_visit update) vs (fun _ => None).

(* The key blocks that row i meets, in their order. *)
Definition met_by (i : nat) (vs : list visit) : list (list nat) :=
  map snd (filter (fun v => if in_dec Nat.eq_dec i (fst v) then true else false) vs).

(* Row i meets every key it sees exactly once. *)
Definition covers (i : nat) (vs : list visit) : Prop :=
  Permutation (filter (sees i) (concat (met_by i vs))) (filter (sees i) (seq 0 nk)).

Lemma pass_row update vs : forall st i,
  fold_left (apply_visit update) vs st i
  = fold_left update (map (map (key_of i)) (met_by i vs)) (st i).
Proof.
  induction vs as [| v vs IH]; intros st i; cbn; [ reflexivity | ].
  rewrite IH. unfold apply_visit, met_by. cbn.
  destruct (in_dec Nat.eq_dec i (fst v)); reflexivity.
Qed.

Definition row_keys (i : nat) : list key := map (key_of i) (seq 0 nk).

Lemma covers_direct i vs : covers i vs ->
  direct (concat (map (map (key_of i)) (met_by i vs))) = direct (row_keys i).
Proof.
  intros H. rewrite <- concat_map, <- direct_visible, <- (direct_visible (row_keys i)).
  unfold row_keys.
  assert (E : forall l, filter visible (map (key_of i) l) = map (key_of i) (filter (sees i) l)).
  { induction l as [| j l IH]; cbn; [ reflexivity | rewrite IH ].
    unfold key_of at 1, visible. cbn. now destruct (sees i j). }
  rewrite !E. apply direct_perm, Permutation_map, H.
Qed.

Theorem fa2_pass i vs : covers i vs -> pass fa2_update vs i = direct (row_keys i).
Proof.
  intros H. unfold pass. rewrite pass_row. rewrite <- (covers_direct i vs H).
  apply (fa2_fold _ []).
Qed.

Theorem fa1_pass i vs : covers i vs -> pass fa1_update vs i = normalise (direct (row_keys i)).
Proof.
  intros H. unfold pass. rewrite pass_row. rewrite <- (covers_direct i vs H).
  apply (fa1_fold _ []).
Qed.

(* The outputs: O, and the exponential of LSE = m + log l. *)
Definition fa2_output (s : state) (c : nat) : R :=
  match s with None => 0 | Some (_, l, o) => o c / l end.
Definition fa1_output (s : state) (c : nat) : R :=
  match s with None => 0 | Some (_, _, o) => o c end.
Definition lse (s : state) : option R := option_map (fun '(m, l, _) => m + ln l) s.

(* Lists of keys and the sums of standard attention *)

Lemma wsum_rsum i f :
  wsum 0 f (row_keys i) = rsum nk (fun j => masked_exp i j * f (key_of i j)).
Proof.
  unfold row_keys. induction nk as [| n IH]; [ reflexivity | ].
  rewrite seq_S, map_app, wsum_app, IH. cbn.
  unfold weight, masked_exp, key_of. cbn. destruct (sees i n); cbn; rewrite ?Rminus_0_r; ring.
Qed.

Lemma sum_exp_wsum i : wsum 0 (fun _ => 1) (row_keys i) = sum_exp i.
Proof.
  rewrite wsum_rsum. unfold sum_exp. f_equal. apply functional_extensionality. intros. ring.
Qed.

Lemma standard_wsum i c : softmax_average (row_keys i) c = standard_attention i c.
Proof.
  unfold softmax_average. rewrite sum_exp_wsum, wsum_rsum. unfold standard_attention.
  set (z := sum_exp i). clearbody z.
  assert (E : forall n, rsum n (fun j => masked_exp i j * snd (key_of i j) c) / z
                      = rsum n (fun j => masked_exp i j / z * V j c)).
  { induction n as [| n IH]; cbn [rsum]; [ unfold Rdiv; ring | rewrite <- IH ].
    change (snd (key_of i n)) with (V n). unfold Rdiv. ring. }
  apply E.
Qed.

Lemma row_sees i : (exists j, (j < nk)%nat /\ sees i j = true) <-> direct (row_keys i) <> None.
Proof.
  rewrite direct_None. unfold row_keys. split.
  - intros (j & Hj & Hs) H. specialize (H (key_of i j)).
    unfold key_of in H. rewrite Hs in H. cbn in H. discriminate H.
    apply in_map_iff. exists j. rewrite Hs. split; [ reflexivity | apply in_seq; lia ].
  - intros H.
    destruct (existsb (sees i) (seq 0 nk)) eqn:E.
    + apply existsb_exists in E as (j & Hj & Hs). apply in_seq in Hj. exists j. split; [ lia | exact Hs ].
    + destruct H. intros k Hk. apply in_map_iff in Hk as (j & <- & Hj). unfold key_of. cbn.
      destruct (sees i j) eqn:Hs; [ | reflexivity ].
      assert (existsb (sees i) (seq 0 nk) = true) by (apply existsb_exists; eauto). congruence.
Qed.

(* A row that sees no key: its standard attention is 0 / 0; the passes give 0. *)
Definition attention (i c : nat) : R :=
  if existsb (sees i) (seq 0 nk) then standard_attention i c else 0.

Lemma attention_direct i c : fa2_output (direct (row_keys i)) c = attention i c.
Proof.
  unfold attention. destruct (existsb (sees i) (seq 0 nk)) eqn:E.
  - destruct (direct (row_keys i)) as [[[m l] o] |] eqn:D.
    + destruct (direct_Some _ _ _ _ D) as (_ & _ & _ & _ & H). cbn. now rewrite H, standard_wsum.
    + exfalso. apply existsb_exists in E as (j & Hj & Hs). apply in_seq in Hj.
      apply (proj1 (row_sees i)); [ exists j; split; [ lia | exact Hs ] | exact D ].
  - destruct (direct (row_keys i)) as [s |] eqn:D; [ exfalso | reflexivity ].
    destruct (proj2 (row_sees i)) as (j & Hj & Hs); [ congruence | ].
    assert (existsb (sees i) (seq 0 nk) = true)
      by (apply existsb_exists; exists j; split; [ apply in_seq; lia | exact Hs ]).
    congruence.
Qed.

Lemma lse_direct i x : lse (direct (row_keys i)) = Some x -> exp x = sum_exp i.
Proof.
  destruct (direct (row_keys i)) as [[[m l] o] |] eqn:D; cbn; [ | discriminate ].
  intros H. injection H as <-.
  destruct (direct_Some _ _ _ _ D) as (Hl & _ & _ & He & _).
  now rewrite exp_plus, exp_ln, He, sum_exp_wsum.
Qed.

Lemma lse_normalise s : lse (normalise s) = lse s.
Proof. destruct s as [[[m l] o] |]; reflexivity. Qed.

Lemma lse_None i : lse (direct (row_keys i)) = None -> forall j, (j < nk)%nat -> sees i j = false.
Proof.
  intros H j Hj. destruct (sees i j) eqn:Hs; [ exfalso | reflexivity ].
  apply (proj1 (row_sees i)); [ eauto | ].
  destruct (direct (row_keys i)) as [[[m l] o] |]; [ discriminate H | reflexivity ].
Qed.

(* Theorem 1, any order of visits. *)

Definition correct_lse (i : nat) (x : option R) : Prop :=
  match x with
  | Some x => exp x = sum_exp i
  | None => forall j, (j < nk)%nat -> sees i j = false
  end.

Lemma correct_lse_direct i : correct_lse i (lse (direct (row_keys i))).
Proof.
  unfold correct_lse. destruct (lse _) eqn:E; [ now apply lse_direct | now apply lse_None ].
Qed.

Theorem fa2_forward i vs : covers i vs ->
  (forall c, fa2_output (pass fa2_update vs i) c = attention i c) /\
  correct_lse i (lse (pass fa2_update vs i)).
Proof.
  intros H. rewrite fa2_pass by exact H.
  split; [ apply attention_direct | apply correct_lse_direct ].
Qed.

Theorem fa1_forward i vs : covers i vs ->
  (forall c, fa1_output (pass fa1_update vs i) c = attention i c) /\
  correct_lse i (lse (pass fa1_update vs i)).
Proof.
  intros H. rewrite fa1_pass by exact H. rewrite lse_normalise.
  split; [ | apply correct_lse_direct ]. intros c. rewrite <- attention_direct.
  destruct (direct (row_keys i)) as [[[m l] o] |]; cbn; [ unfold Rdiv; ring | reflexivity ].
Qed.

(* The loop nests: blocks are any lists of rows. *)
Definition kv_outer (qs ks : list (list nat)) : list visit :=
  flat_map (fun k => map (fun q => (q, k)) qs) ks.
Definition q_outer (qs ks : list (list nat)) : list visit :=
  flat_map (fun q => map (fun k => (q, k)) ks) qs.

Lemma met_by_app i a b : met_by i (a ++ b) = met_by i a ++ met_by i b.
Proof. unfold met_by. now rewrite filter_app, map_app. Qed.

Lemma met_by_cons i v vs : met_by i (v :: vs)
  = if in_dec Nat.eq_dec i (fst v) then snd v :: met_by i vs else met_by i vs.
Proof. unfold met_by. cbn [filter]. destruct (in_dec Nat.eq_dec i (fst v)); reflexivity. Qed.

(* A row of exactly one query block meets every key block once. *)
Lemma met_by_inner i (k : list nat) qs : NoDup (concat qs) -> In i (concat qs) ->
  met_by i (map (fun q => (q, k)) qs) = [k].
Proof.
  assert (Z : forall l, ~ In i (concat l) -> met_by i (map (fun q => (q, k)) l) = []).
  { induction l as [| q l IH]; [ reflexivity | ]. cbn [map concat]. rewrite in_app_iff.
    intros H. rewrite met_by_cons. cbn [fst snd].
    destruct (in_dec Nat.eq_dec i q); [ tauto | apply IH; tauto ]. }
  induction qs as [| q qs' IH]; cbn [map concat]; intros N H; [ contradiction | ].
  rewrite met_by_cons. cbn [fst snd]. destruct (in_dec Nat.eq_dec i q) as [Hq | Hq].
  - f_equal. apply Z. now apply (NoDup_app_disjoint q).
  - apply IH; [ now apply NoDup_app_inv in N | apply in_app_iff in H; tauto ].
Qed.

Lemma kv_outer_met i qs ks : NoDup (concat qs) -> In i (concat qs) ->
  met_by i (kv_outer qs ks) = ks.
Proof.
  intros N H. unfold kv_outer. induction ks as [| k ks IH]; [ reflexivity | ].
  cbn [flat_map]. now rewrite met_by_app, IH, met_by_inner.
Qed.

Lemma met_by_row i q (ks : list (list nat)) :
  met_by i (map (fun k => (q, k)) ks) = if in_dec Nat.eq_dec i q then ks else [].
Proof.
  induction ks as [| k ks IH]; cbn [map].
  - now destruct (in_dec Nat.eq_dec i q).
  - rewrite met_by_cons, IH. cbn [fst snd]. now destruct (in_dec Nat.eq_dec i q).
Qed.

Lemma q_outer_met i qs ks : NoDup (concat qs) -> In i (concat qs) ->
  met_by i (q_outer qs ks) = ks.
Proof.
  assert (Z : forall l, ~ In i (concat l) -> met_by i (q_outer l ks) = []).
  { induction l as [| q l IH]; [ reflexivity | ]. cbn [q_outer flat_map concat].
    rewrite in_app_iff. intros H. fold (q_outer l ks). rewrite met_by_app, met_by_row, IH by tauto.
    destruct (in_dec Nat.eq_dec i q); tauto. }
  induction qs as [| q qs' IH]; cbn [q_outer flat_map concat]; intros N H; [ contradiction | ].
  fold (q_outer qs' ks). rewrite met_by_app, met_by_row.
  destruct (in_dec Nat.eq_dec i q) as [Hq | Hq].
  - rewrite Z; [ apply app_nil_r | now apply (NoDup_app_disjoint q) ].
  - apply IH; [ now apply NoDup_app_inv in N | apply in_app_iff in H; tauto ].
Qed.

Lemma covers_all i vs ks : met_by i vs = ks -> Permutation (concat ks) (seq 0 nk) -> covers i vs.
Proof.
  intros E P. unfold covers. rewrite E. clear - P.
  induction P as [| x a b _ IH | x y a | a b c _ IH1 _ IH2]; cbn; auto.
  - destruct (sees i x); auto.
  - destruct (sees i x), (sees i y); auto. constructor.
  - now transitivity (filter (sees i) b).
Qed.

(* Either loop nest visits every pair of blocks. *)
Definition nest (queries_outer : bool) (qs ks : list (list nat)) : list visit :=
  if queries_outer then q_outer qs ks else kv_outer qs ks.

Lemma nest_covers queries_outer qs ks i :
  NoDup (concat qs) -> In i (concat qs) -> Permutation (concat ks) (seq 0 nk) ->
  covers i (nest queries_outer qs ks).
Proof.
  intros N H P. apply covers_all with ks; [ | exact P ].
  destruct queries_outer; [ now apply q_outer_met | now apply kv_outer_met ].
Qed.

(* Fully masked blocks may be left out (causal and block-sparse attention). *)
Definition any_visible (v : visit) : bool :=
  existsb (fun i => existsb (sees i) (snd v)) (fst v).

Theorem skip_masked i vs : covers i vs -> covers i (filter any_visible vs).
Proof.
  unfold covers. intros H. rewrite <- H. clear H.
  replace (filter (sees i) (concat (met_by i (filter any_visible vs))))
    with (filter (sees i) (concat (met_by i vs))); [ reflexivity | ].
  induction vs as [| [q k] vs IH]; [ reflexivity | ].
  cbn [filter]. destruct (any_visible (q, k)) eqn:E; rewrite !met_by_cons; cbn [fst snd];
    destruct (in_dec Nat.eq_dec i q) as [Hi | Hi]; cbn [concat];
    rewrite ?filter_app, ?IH; trivial.
  replace (filter (sees i) k) with (@nil nat); [ reflexivity | ].
  assert (Hn : forall j, In j k -> sees i j = false).
  { intros j Hj. destruct (sees i j) eqn:Hs; [ | reflexivity ].
    rewrite <- E. symmetry. unfold any_visible. apply existsb_exists. exists i. split; [ exact Hi | ].
    apply existsb_exists. eauto. }
  clear - Hn. induction k as [| j k IH]; [ reflexivity | ]. cbn.
  rewrite Hn by (now left). apply IH. intros. apply Hn. now right.
Qed.

(* Any blocks of query rows and of key rows, in any order, either loop nest, every
   block visited or only those that are not fully masked. *)
Definition kept_visits (skip : bool) (vs : list visit) : list visit :=
  if skip then filter any_visible vs else vs.

Lemma kept_covers skip i vs : covers i vs -> covers i (kept_visits skip vs).
Proof. destruct skip; [ apply skip_masked | trivial ]. Qed.

Theorem fa1_blocks queries_outer skip qs ks i :
  NoDup (concat qs) -> In i (concat qs) -> Permutation (concat ks) (seq 0 nk) ->
  let s := pass fa1_update (kept_visits skip (nest queries_outer qs ks)) i in
  (forall c, fa1_output s c = attention i c) /\ correct_lse i (lse s).
Proof. intros N H P. apply fa1_forward, kept_covers. now apply nest_covers. Qed.

Theorem fa2_blocks queries_outer skip qs ks i :
  NoDup (concat qs) -> In i (concat qs) -> Permutation (concat ks) (seq 0 nk) ->
  let s := pass fa2_update (kept_visits skip (nest queries_outer qs ks)) i in
  (forall c, fa2_output s c = attention i c) /\ correct_lse i (lse s).
Proof. intros N H P. apply fa2_forward, kept_covers. now apply nest_covers. Qed.

(* As printed: FlashAttention-1 with K/V outside, FlashAttention-2 with Q outside,
   tiles of br query rows and bc key rows. *)
Corollary flash1_forward nq skip br bc i : (0 < br)%nat -> (0 < bc)%nat -> (i < nq)%nat ->
  let s := pass fa1_update (kept_visits skip (nest false (tiles nq br) (tiles nk bc))) i in
  (forall c, fa1_output s c = attention i c) /\ correct_lse i (lse s).
Proof.
  intros Hr Hc Hi. apply fa1_blocks; rewrite ?concat_tiles by assumption;
    [ apply seq_NoDup | apply in_seq; lia | reflexivity ].
Qed.

Corollary flash2_forward nq skip br bc i : (0 < br)%nat -> (0 < bc)%nat -> (i < nq)%nat ->
  let s := pass fa2_update (kept_visits skip (nest true (tiles nq br) (tiles nk bc))) i in
  (forall c, fa2_output s c = attention i c) /\ correct_lse i (lse s).
Proof.
  intros Hr Hc Hi. apply fa2_blocks; rewrite ?concat_tiles by assumption;
    [ apply seq_NoDup | apply in_seq; lia | reflexivity ].
Qed.
End Attention.
